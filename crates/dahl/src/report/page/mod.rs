//! One page of one or several runs: a file without outside references.

mod data;
mod gantt;

pub use data::{run_json, runs_json};

use serde_json::{Value, json};

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const SCRIPTS: [&str; 5] = [
    include_str!("base.js"),
    include_str!("charts.js"),
    include_str!("gantt.js"),
    include_str!("sections.js"),
    include_str!("main.js"),
];

/// Where a page has its runs from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They are in it.
    File,
    /// It asks for them again and again, at `data.json` beside it.
    Live,
}

/// The page of runs, which [`runs_json`] makes.
pub fn page(runs: &Value, mode: Mode) -> String {
    // A text in the data must not end the element that it stands in; only texts have it.
    let data = json!({ "live": mode == Mode::Live, "runs": runs }).to_string();
    let data = data.replace('<', "\\u003c");
    let script = SCRIPTS.join("\n");
    let mut page = String::with_capacity(HTML.len() + STYLE.len() + script.len() + data.len());
    let mut rest = HTML;
    for (mark, text) in [("/*STYLE*/", STYLE), ("/*DATA*/", &data), ("/*SCRIPT*/", &script)] {
        let (before, after) = rest.split_once(mark).expect("the marks of the page");
        page += before;
        page += text;
        rest = after;
    }
    page + rest
}

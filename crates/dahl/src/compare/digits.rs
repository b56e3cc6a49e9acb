//! Two numbers under each other, digit by digit.

use super::Ulp;

/// The emphasis of digits that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emphasis {
    /// A third line with carets under them.
    Carets,
    /// ANSI escapes around them.
    Ansi,
}

/// Two numbers as lines of equal width, decimal points under each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aligned {
    /// The reference.
    pub reference: String,
    /// The other number.
    pub found: String,
    /// Carets from the first digit that differs on; `None` where nothing
    /// differs or the emphasis is in the lines themselves.
    pub marks: Option<String>,
}

/// Numbers are written out plainly between these powers of ten (every `i64`
/// is), and with an exponent that both share elsewhere.
const PLAIN: std::ops::Range<i32> = -5..19;

/// So many columns are shown from the first digit that differs on.
const SHOWN: usize = 20;

const RED: &str = "\x1b[1;31m";
const RESET: &str = "\x1b[0m";

/// Writes two numbers under each other, with as many digits as tell them from
/// their neighbours, and marks the digits from the first that differs on.
///
/// ```
/// use dahl::compare::{Emphasis, align};
/// let lines = align(12.001f64, 1.002, Emphasis::Carets);
/// assert_eq!(lines.reference, "12.001");
/// assert_eq!(lines.found, " 1.002");
/// assert_eq!(lines.marks.unwrap(), "^^^^^^");
/// ```
pub fn align<T: Ulp>(reference: T, found: T, emphasis: Emphasis) -> Aligned {
    let (a, b) = (Decimal::of(reference), Decimal::of(found));
    let finite = a.is_some() && b.is_some();
    let [a, b] = match (&a, &b) {
        (Some(a), Some(b)) => layout(a, b),
        _ => {
            let text = |x: &Option<Decimal>, value: T| match x {
                Some(x) => layout(x, x)[0].clone(),
                None => value.to_string(),
            };
            padded_right([text(&a, reference), text(&b, found)])
        }
    };
    if reference.identical(found) {
        return Aligned { reference: a, found: b, marks: None };
    }
    let first = first_difference(&a, &b);
    let [a, b] = if finite { [shorten(a, first), shorten(b, first)] } else { [a, b] };
    match emphasis {
        Emphasis::Carets => {
            let width = a.len().max(b.len());
            let marks = format!("{}{}", " ".repeat(first), "^".repeat(width - first));
            Aligned { reference: a, found: b, marks: Some(marks) }
        }
        Emphasis::Ansi => {
            let painted = |s: String| format!("{}{RED}{}{RESET}", &s[..first], &s[first..]);
            Aligned { reference: painted(a), found: painted(b), marks: None }
        }
    }
}

/// A finite number: ±0.d₀d₁d₂… × 10^point.
struct Decimal {
    negative: bool,
    digits: String,
    point: i32,
}

impl Decimal {
    /// The shortest digits that read back as this value; `None` where it is
    /// infinite or NaN.
    fn of<T: Ulp>(x: T) -> Option<Self> {
        let text = x.to_string();
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest.to_owned()),
            None => (false, text),
        };
        if !text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return None;
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let all = format!("{whole}{fraction}");
        let leading = all.len() - all.trim_start_matches('0').len();
        let digits = all[leading..].trim_end_matches('0').to_owned();
        let point = if digits.is_empty() { 1 } else { whole.len() as i32 - leading as i32 };
        Some(Self { negative, digits, point })
    }

    /// The digits before and after the decimal point of self / 10^exponent.
    fn split(&self, exponent: i32) -> (String, String) {
        if self.digits.is_empty() {
            return ("0".to_owned(), String::new());
        }
        let point = self.point - exponent;
        let mut digits = self.digits.clone();
        if point <= 0 {
            let zeros = "0".repeat(point.unsigned_abs() as usize);
            return ("0".to_owned(), format!("{zeros}{digits}"));
        }
        let point = point as usize;
        if digits.len() < point {
            digits.push_str(&"0".repeat(point - digits.len()));
        }
        let fraction = digits.split_off(point);
        (digits, fraction)
    }
}

/// Both numbers, decimal points and ends under each other.
fn layout(a: &Decimal, b: &Decimal) -> [String; 2] {
    let zero = |x: &Decimal| x.digits.is_empty();
    let largest = match (zero(a), zero(b)) {
        (true, _) => b.point,
        (_, true) => a.point,
        _ => a.point.max(b.point),
    };
    // Of 0.d₀d₁… × 10^point the first digit counts 10^(point - 1).
    let exponent = if PLAIN.contains(&(largest - 1)) { 0 } else { largest - 1 };
    let parts = [a, b].map(|x| (x.split(exponent), x.negative));
    let before = parts.iter().map(|((whole, _), _)| whole.len()).max().unwrap_or(0);
    let after = parts.iter().map(|((_, fraction), _)| fraction.len()).max().unwrap_or(0);
    let signed = a.negative || b.negative;
    parts.map(|((whole, fraction), negative)| {
        let sign = match (signed, negative) {
            (false, _) => "",
            (true, false) => " ",
            (true, true) => "-",
        };
        // The sign stands before the first digit, wherever that is.
        let whole = format!("{sign}{whole}");
        let width = before + usize::from(signed);
        let point = match (after, exponent) {
            (0, _) => "",
            (_, 0) if fraction.is_empty() => " ",
            _ => ".",
        };
        if exponent == 0 {
            format!("{whole:>width$}{point}{fraction:<after$}")
        } else {
            format!("{whole:>width$}{point}{fraction:0<after$}e{exponent}")
        }
    })
}

/// The first column whose digits differ; a missing digit is a zero. Where the
/// signs differ, everything does.
fn first_difference(a: &str, b: &str) -> usize {
    let negative = |s: &str| s.trim_start().starts_with('-');
    if negative(a) != negative(b) {
        let start = |s: &str| s.len() - s.trim_start().len();
        return start(a).min(start(b));
    }
    let value = |c: u8| if matches!(c, b' ' | b'-' | b'.') { b'0' } else { c };
    let differs = a.bytes().zip(b.bytes()).position(|(x, y)| value(x) != value(y));
    differs.unwrap_or(0)
}

/// The text without what is too far behind the first difference: never digits
/// before the point, of which there are at most [`SHOWN`] with their sign.
fn shorten(text: String, first: usize) -> String {
    let end = first + SHOWN;
    let exponent = text.find('e').unwrap_or(text.len());
    if exponent <= end + 2 {
        return text;
    }
    format!("{}..{}", &text[..end], &text[exponent..])
}

fn padded_right(texts: [String; 2]) -> [String; 2] {
    let width = texts.iter().map(String::len).max().unwrap_or(0);
    texts.map(|text| format!("{text:<width$}"))
}

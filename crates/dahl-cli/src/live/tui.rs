//! The running job on a terminal.

use super::Screen;
use crate::output::escaped;
use dahl::os::threads::spawn;
use dahl::report::{Energy, percents};
use dahl::run::EpochMetrics;
use dahl::run::{RunState, View};
use dahl::trace::Activity;
use dahl::units::{Bytes, Nanos};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use signal_hook::consts::SIGINT;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval between drawings.
const DRAWN: Duration = Duration::from_millis(250);

/// A thread that draws; the terminal is as before when it is dropped.
pub(super) struct Tui {
    screen: Screen,
    thread: Option<JoinHandle<()>>,
}

impl Tui {
    /// Draws a run; `url` is where else it can be seen.
    pub(super) fn start(shared: Arc<View>, url: Option<String>) -> io::Result<Self> {
        let screen = Screen::open()?;
        let mut terminal = Terminal::new(CrosstermBackend::new(io::stderr()))?;
        let own = screen.clone();
        let body = move || {
            let mut before = shared.metered.counters().activity();
            while own.is_drawn_on() {
                let activity = shared.metered.counters().activity();
                let recent = activity.since(&before);
                before = activity;
                let (now, url) = (shared.now(), url.as_deref());
                let mut drawing =
                    || terminal.draw(|frame| draw(frame, (&shared, url), &now, &recent)).map(drop);
                if own.draw(&mut drawing).is_err() || !goes_on() {
                    break;
                }
            }
            own.leave();
        };
        let thread = spawn("dahl-tui", body)?;
        Ok(Self { screen, thread: Some(thread) })
    }

    /// The terminal that it draws on.
    pub(super) fn screen(&self) -> Screen {
        self.screen.clone()
    }
}

impl Drop for Tui {
    fn drop(&mut self) {
        self.screen.leave();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for a key until it is time to draw again; whether to go on drawing.
fn goes_on() -> bool {
    if !event::poll(DRAWN).unwrap_or(false) {
        return true;
    }
    match event::read() {
        Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => match key.code {
            KeyCode::Char('q') => false,
            // In raw mode the terminal sends no signal for it.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                let _ = signal_hook::low_level::raise(SIGINT);
                true
            }
            _ => true,
        },
        _ => true,
    }
}

fn block(title: &str) -> Block<'_> {
    Block::bordered().title(title).border_style(Style::new().fg(Color::DarkGray))
}

fn draw(
    frame: &mut ratatui::Frame<'_>,
    (shared, url): (&View, Option<&str>),
    now: &RunState,
    recent: &Activity,
) {
    let workers = recent.workers.len() as u16;
    let [head, middle, table, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length((workers + 2).clamp(7, 18)),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let elapsed = shared.begin.elapsed().as_secs_f64();
    let speed = now.samples as f64 / elapsed.max(1e-9);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let title = Line::from(vec![
        Span::styled(format!("dahl {} ", escaped(&shared.model)), bold),
        Span::raw(format!(
            " epoch {}, step {}, {} samples at {speed:.0}/s, {elapsed:.0} s",
            now.epochs.len() + 1,
            now.step,
            now.samples
        )),
    ]);
    frame.render_widget(Paragraph::new(title), head);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(middle);
    let [losses, facts] = Layout::vertical([Constraint::Min(3), Constraint::Length(4)]).areas(left);
    draw_losses(frame, losses, now);
    frame.render_widget(Paragraph::new(facts_of(shared, now)), facts);
    frame.render_widget(
        Paragraph::new(bars(recent, right.width)).block(block("workers, now")),
        right,
    );
    draw_codelets(frame, table, shared);
    let keys = "q closes this view, the run continues   Ctrl-C saves and stops the run";
    let keys = url.map_or(keys.to_owned(), |url| format!("{url}   {keys}"));
    frame.render_widget(Paragraph::new(keys).style(Style::new().fg(Color::DarkGray)), foot);
}

fn draw_losses(frame: &mut ratatui::Frame<'_>, area: ratatui::layout::Rect, now: &RunState) {
    let shown = usize::from(area.width.saturating_sub(2));
    let tail = &now.losses[now.losses.len().saturating_sub(shown)..];
    let most = tail.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let data: Vec<u64> = tail.iter().map(|loss| (loss / most * 1000.0).max(0.0) as u64).collect();
    let title = match tail.last() {
        Some(loss) => format!("loss by step: {loss:.4}"),
        None => "loss by step".to_owned(),
    };
    let line = Sparkline::default().data(&data).max(1000).style(Style::new().fg(Color::Cyan));
    frame.render_widget(line.block(block(&title)), area);
}

fn facts_of(shared: &View, now: &RunState) -> Vec<Line<'static>> {
    let accuracy = now.epochs.last().and_then(EpochMetrics::test_accuracy);
    let accuracy =
        accuracy.map_or("not evaluated yet".to_owned(), |a| format!("{:.2} %", 100.0 * a));
    let energy = Energy::best(&shared.record());
    let energy =
        energy.map_or("unknown".to_owned(), |energy| escaped(&energy.headline()).into_owned());
    let planned: u64 = shared.planned.iter().map(|part| part.1).sum();
    let resident = dahl::native::resident_bytes();
    let resident = resident.map_or("unknown".to_owned(), |bytes| Bytes(bytes).to_string());
    vec![
        Line::from(format!(" test accuracy  {accuracy}")),
        Line::from(format!(" energy         {energy}")),
        Line::from(format!(" memory         {} planned, {resident} resident", Bytes(planned))),
    ]
}

/// A bar a worker: what it did since the last look.
fn bars(recent: &Activity, width: u16) -> Vec<Line<'static>> {
    let room = usize::from(width.saturating_sub(20)).max(4);
    let bar = |(w, worker): (usize, &dahl::trace::WorkerTime)| {
        let all = recent.elapsed.max(1) as f64;
        let part = |nanos: u64| ((nanos as f64 / all).min(1.0) * room as f64).round() as usize;
        let busy = part(worker.busy).min(room);
        let spinning = part(worker.spinning).min(room - busy);
        let rest = room - busy - spinning;
        let percent = 100.0 * (worker.busy as f64 / all).min(1.0);
        Line::from(vec![
            Span::raw(format!(" {w:>3} {percent:>5.1} % ")),
            Span::styled("█".repeat(busy), Style::new().fg(Color::Green)),
            Span::styled("▒".repeat(spinning), Style::new().fg(Color::Yellow)),
            Span::styled("·".repeat(rest), Style::new().fg(Color::DarkGray)),
        ])
    };
    recent.workers.iter().enumerate().map(bar).collect()
}

fn draw_codelets(frame: &mut ratatui::Frame<'_>, area: ratatui::layout::Rect, shared: &View) {
    let mut counts = shared.metered.counters().codelets();
    counts.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    counts.retain(|count| count.calls > 0);
    let shares = percents(&counts.iter().map(|count| count.time.0 as f64).collect::<Vec<_>>());
    let shown = columns(area.width.saturating_sub(2));
    let row = |name: &str, numbers: [String; COLUMNS.len()]| {
        let number = |&i: &usize| format!("{:>1$}", numbers[i], usize::from(COLUMNS[i].1));
        let cells = std::iter::once(name.to_owned()).chain(shown.iter().map(number));
        Row::new(cells.map(Cell::from).collect::<Vec<_>>())
    };
    let rows = counts.iter().zip(shares).map(|(count, share)| {
        let mean = Nanos(count.time.0 / count.calls).to_string();
        let (calls, total) = (count.calls.to_string(), count.time.to_string());
        row(&escaped(&count.name), [calls, total, format!("{share:.1} %"), mean])
    });
    let numbers = shown.iter().map(|&i| Constraint::Length(COLUMNS[i].1));
    let widths = std::iter::once(Constraint::Fill(1)).chain(numbers);
    let head = row("codelet", COLUMNS.map(|(name, _)| name.to_owned()));
    let head = head.style(Style::new().fg(Color::DarkGray));
    let table = Table::new(rows.collect::<Vec<_>>(), widths).header(head);
    frame.render_widget(table.block(block("codelets")), area);
}

/// The line of a codelet, and its width.
const COLUMNS: [(&str, u16); 4] = [("calls", 9), ("total", 10), ("share", 7), ("mean", 10)];
/// The least room for its name.
const NAME: u16 = 24;

/// The columns that there is room for: the widest go first, of equal ones the last. A number
/// that is cut is another number.
fn columns(room: u16) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..COLUMNS.len()).collect();
    while shown.iter().map(|&i| COLUMNS[i].1 + 1).sum::<u16>() + NAME > room {
        let Some(widest) = shown.iter().copied().max_by_key(|&i| COLUMNS[i].1) else { break };
        shown.retain(|&i| i != widest);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_has_fewer_columns_and_cuts_no_number() {
        for (room, expected) in [
            (98, &["calls", "total", "share", "mean"][..]),
            (64, &["calls", "total", "share", "mean"]),
            (63, &["calls", "total", "share"]),
            (48, &["calls", "share"]),
            (41, &["share"]),
            (20, &[]),
        ] {
            let names: Vec<&str> = columns(room).into_iter().map(|i| COLUMNS[i].0).collect();
            assert_eq!(names, expected, "{room}");
        }
    }
}

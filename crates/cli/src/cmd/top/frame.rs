//! Layout of the terminal, for any size.

use std::time::Duration;

use cenote::model::DeviceState;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};

use super::rows::{self, Marks};
use crate::args::SortArg;

/// Abilities of the terminal.
pub struct Look {
    colour: bool,
    marks: Marks,
}

impl Look {
    /// No colour if `NO_COLOR` is set; only ASCII if the locale has nothing else.
    pub fn of_terminal() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let is_unicode = locale.to_uppercase().replace('-', "").contains("UTF8");
        let marks = if is_unicode { Marks::unicode() } else { Marks::ascii() };
        Self { colour: set("NO_COLOR").is_none(), marks }
    }
    fn tinted(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }
    fn dim(&self) -> Style {
        if self.colour { Style::new().add_modifier(Modifier::DIM) } else { Style::new() }
    }
}

/// Everything on the screen.
pub struct Shown {
    pub look: Option<super::Look>,
    pub error: Option<String>,
    pub paused: bool,
    pub pause: Duration,
    pub sort: SortArg,
    pub style: Look,
}

pub fn draw(frame: &mut Frame<'_>, shown: &Shown) {
    let area = frame.area();
    let Some(look) = &shown.look else {
        let text = shown.error.as_deref().unwrap_or("looking at the store...");
        return frame.render_widget(Paragraph::new(text), area);
    };
    let tiers = rows::tiers(look, &shown.style.marks);
    let flows = rows::flows(look, &shown.style.marks);
    let hot = rows::hot(look, shown.sort);
    let clients = rows::clients(look, shown.sort);
    // Tiers always; then as many lists as fit, each with a title and at least two lines.
    let tiers_height = (tiers.len() as u16 + 2).min(area.height.saturating_sub(2).max(3));
    let rest = area.height.saturating_sub(tiers_height + 2);
    let flows_height = (flows.len().max(1) as u16 + 2).min(rest / 3 + 1).max(if rest >= 4 { 4 } else { 0 });
    let clients_height = (clients.len().max(1) as u16 + 2).min(rest.saturating_sub(flows_height) / 2);
    let [head, tiers_at, flows_at, hot_at, clients_at, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(tiers_height),
        Constraint::Length(flows_height),
        Constraint::Fill(1),
        Constraint::Length(clients_height),
        Constraint::Length(1),
    ])
    .areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut title = vec![Span::styled("cenote top", bold), Span::raw(format!("  {}", rows::title(look)))];
    if shown.paused {
        title.push(Span::styled("  [paused]", bold.add_modifier(Modifier::REVERSED)));
    }
    frame.render_widget(Line::from(title), head);
    let states = look.now.devices.iter().map(|device| {
        let high = f64::from(device.spec.watermark_high_permille) / 1000.0;
        match device.state {
            DeviceState::Failed => shown.style.tinted(Color::Red),
            _ if rows::fill(device) >= high => shown.style.tinted(Color::Yellow),
            _ => shown.style.tinted(Color::Cyan),
        }
    });
    let states: Vec<Style> = states.collect();
    table(frame, tiers_at, shown, "tiers", &rows::TIER_TITLES, &tiers, |row, column| {
        (column == 3).then(|| states.get(row).copied().unwrap_or_default())
    });
    table(frame, flows_at, shown, "flows", &rows::FLOW_TITLES, &flows, |row, column| {
        let is_idle = look.rates.flows.get(row).is_some_and(|flow| flow.bytes_per_s < 1.0);
        if is_idle { Some(shown.style.dim()) } else { (column == 4).then(|| shown.style.tinted(Color::Green)) }
    });
    let order = match shown.sort {
        SortArg::Heat => "hot objects",
        SortArg::Size => "hot objects, largest first",
        SortArg::Name => "hot objects, by name",
    };
    table(frame, hot_at, shown, order, &rows::HOT_TITLES, &hot, |_, _| None);
    table(frame, clients_at, shown, "clients", &rows::CLIENT_TITLES, &clients, |_, _| None);
    let keys = format!("q leave  p pause  s sort  +/- every {} s", shown.pause.as_secs_f64());
    let foot_line = match &shown.error {
        Some(error) => Line::styled(format!("no answer: {error}"), shown.style.tinted(Color::Red).patch(bold)),
        None => Line::styled(keys, shown.style.dim()),
    };
    frame.render_widget(foot_line, foot);
}

/// A table whose columns fit their content; the widest one shrinks if there is no space.
fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    shown: &Shown,
    title: &str,
    titles: &[&str],
    rows: &[Vec<String>],
    style: impl Fn(usize, usize) -> Option<Style>,
) {
    if area.height < 2 {
        return;
    }
    let names: Vec<&str> = titles.iter().map(|title| title.trim_start_matches('>')).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([names[column].chars().count()]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let gaps = titles.len().saturating_sub(1) * 2;
    while widths.iter().sum::<usize>() + gaps > area.width as usize {
        let Some(widest) = widths.iter_mut().max().filter(|width| **width > 4) else { break };
        *widest -= 1;
    }
    let cell = |column: usize, text: &str| {
        let wide = widths[column];
        let text: String = text.chars().take(wide).collect();
        if titles[column].starts_with('>') { format!("{text:>wide$}") } else { text }
    };
    let head = Row::new(names.iter().enumerate().map(|(column, name)| Cell::new(cell(column, name))));
    let body = rows.iter().enumerate().map(|(row, cells)| {
        Row::new(
            cells
                .iter()
                .enumerate()
                .map(|(column, text)| Cell::new(cell(column, text)).style(style(row, column).unwrap_or_default())),
        )
    });
    let set = if shown.style.marks.parts.is_empty() {
        ratatui::symbols::border::Set {
            horizontal_top: "-",
            top_left: "-",
            top_right: "-",
            ..ratatui::symbols::border::PLAIN
        }
    } else {
        ratatui::symbols::border::PLAIN
    };
    let block =
        Block::new().borders(Borders::TOP).border_set(set).title(format!(" {title} ")).border_style(shown.style.dim());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let constraints = widths.iter().map(|width| Constraint::Length(*width as u16));
    let table = Table::new(body, constraints).header(head.style(bold)).column_spacing(2).block(block);
    frame.render_widget(table, area);
}

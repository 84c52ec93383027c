//! Drawing of the recommendations: per file or memory object the current time, and below it the time on its tier.

use std::path::Path;

use cenote::model::size::human;
use cenote::{Error, ErrorKind};
use cenote_advise::{Advice, Recommendation, Subject};
use cenote_policy::DeviceView;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::super::tiers::time;
use super::super::tiers_plot::{COLOURS, FONT};

const WIDTH: u32 = 1280;
/// Height of a row, in pixels.
const ROW: i32 = 44;
const HEAD: i32 = 64;
/// Width of names, and of the text after the bars.
const LEFT: i32 = 400;
const RIGHT: i32 = 250;
const SUBJECTS_MOST: usize = 24;
const NAME_CHARS: usize = 52;
const NOW: RGBColor = RGBColor(170, 170, 170);

/// Checks before the program runs that the file can be written.
pub fn check(file: &Path) -> cenote::Result<()> {
    if file.extension().is_some_and(|ending| !ending.eq_ignore_ascii_case("svg")) {
        return Err(Error::new(ErrorKind::Unsupported, format!("plot {}", file.display()))
            .because("plots are drawn as SVG")
            .try_next("name a file that ends with .svg; any browser shows it, and `rsvg-convert` makes a PNG of it"));
    }
    Ok(())
}

/// Draws into a file.
pub fn draw(file: &Path, advice: &Advice, tiers: &[DeviceView]) -> cenote::Result<()> {
    let mut text = String::new();
    render(&mut text, advice, tiers)
        .map_err(|why| Error::new(ErrorKind::Internal, "a plot of the advice").because(why))?;
    std::fs::write(file, text).map_err(|error| Error::io(format!("plot {}", file.display()), &error))
}

fn render(text: &mut String, advice: &Advice, tiers: &[DeviceView]) -> Result<(), String> {
    let worth = |item: &&Recommendation| item.now_s > 0.0 || item.tier.is_some();
    let items: Vec<&Recommendation> =
        super::report::listed(advice).into_iter().filter(worth).take(SUBJECTS_MOST).collect();
    let height = HEAD + ROW * items.len().max(1) as i32 + 24;
    let area = SVGBackend::with_string(text, (WIDTH, height as u32)).into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    area.fill(&WHITE).map_err(|e| failed(&e))?;
    let gain = format!(
        "{:.2} s: {} less by recommended places, {} of memory free",
        advice.wall_s,
        time(advice.gain_s() * 1e9),
        human(advice.freed_bytes())
    );
    write(&area, &gain, (12, 16), 18, HPos::Left)?;
    legend(&area, tiers)?;
    let longest = items.iter().map(|item| item.now_s.max(item.there_s)).fold(0.0, f64::max);
    for (at, item) in items.iter().enumerate() {
        row(&area, item, tiers, HEAD + ROW * at as i32, longest)?;
    }
    if items.is_empty() {
        write(&area, "nothing to place", (LEFT, HEAD + ROW / 2), 14, HPos::Left)?;
    }
    area.present().map_err(|e| failed(&e))
}

fn write(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    text: &str,
    at: (i32, i32),
    size: i32,
    side: HPos,
) -> Result<(), String> {
    let style = (FONT, size).into_font().color(&BLACK).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style)).map_err(|error| error.to_string())
}

fn bar(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    from: (i32, i32),
    to: (i32, i32),
    colour: RGBColor,
) -> Result<(), String> {
    area.draw(&Rectangle::new([from, to], colour.filled())).map_err(|error| error.to_string())
}

fn legend(area: &DrawingArea<SVGBackend<'_>, Shift>, tiers: &[DeviceView]) -> Result<(), String> {
    let mut x = 12;
    let names = std::iter::once(("now".to_owned(), NOW))
        .chain(tiers.iter().zip(COLOURS.iter().cycle()).map(|(tier, colour)| (format!("on {}", tier.name), *colour)));
    for (name, colour) in names {
        bar(area, (x, 36), (x + 14, 48), colour)?;
        write(area, &name, (x + 20, 43), 13, HPos::Left)?;
        x += 34 + 8 * name.chars().count() as i32;
    }
    Ok(())
}

/// Returns the end of a name, where names differ.
fn short(name: &str) -> String {
    let count = name.chars().count();
    if count <= NAME_CHARS {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(count - NAME_CHARS + 1)).collect()
}

fn row(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    item: &Recommendation,
    tiers: &[DeviceView],
    top: i32,
    longest: f64,
) -> Result<(), String> {
    let name = match &item.subject {
        Subject::File(file) => short(&file.path),
        Subject::Memory(memory) => short(&super::report::place(memory)),
    };
    write(area, &name, (LEFT - 10, top + ROW / 2), 13, HPos::Right)?;
    let room = f64::from(WIDTH as i32 - LEFT - RIGHT);
    let end = |seconds: f64| LEFT + 1 + (if longest > 0.0 { seconds / longest * room } else { 0.0 }) as i32;
    bar(area, (LEFT, top + 6), (end(item.now_s), top + 20), NOW)?;
    let words = match item.tier {
        Some(tier) => {
            bar(area, (LEFT, top + 22), (end(item.there_s), top + 36), COLOURS[tier % COLOURS.len()])?;
            let (now, there) = (time(item.now_s * 1e9), time(item.there_s * 1e9));
            format!("{now} → {there} on {} ({:+.0}%)", tiers[tier].name, -item.gain_share() * 100.0)
        }
        None => format!("{}, stays", time(item.now_s * 1e9)),
    };
    write(area, &words, (end(item.now_s.max(item.there_s)) + 8, top + ROW / 2), 13, HPos::Left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote::DeviceKind;
    use cenote::model::DeviceId;
    use cenote_tally::{FileUse, Run};

    #[test]
    fn what_is_recommended_is_drawn() {
        let tiers = [DeviceView::new(DeviceId(1), "ram", DeviceKind::SharedMemory, 1 << 30)];
        let mut run = Run::default();
        for (at, seconds) in [(1, 3.0), (2, 1e-7)] {
            let mut file = FileUse { path: format!("/data/<{at}>"), size_bytes: 1 << 20, ..FileUse::default() };
            (file.reads.accesses, file.reads.bytes) = (1000, 4_096_000);
            file.reads.ns = (seconds * 1e9) as u64;
            run.add_file(&file);
        }
        let advice = cenote_advise::advise(&run, &tiers, 5.0);
        let mut text = String::new();
        render(&mut text, &advice, &tiers).unwrap();
        assert!(text.starts_with("<svg") && text.contains("</svg>"), "{text}");
        for part in ["/data/&lt;1&gt;", "on ram (-100%)", "100 ns, stays", "3.0 s"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut text = String::new();
        render(&mut text, &cenote_advise::advise(&Run::default(), &tiers, 0.0), &tiers).unwrap();
        assert!(text.contains("nothing to place"));
        assert!(check(Path::new("x.png")).unwrap_err().cause().contains("SVG"));
        assert!(check(Path::new("x.svg")).is_ok() && short(&"x".repeat(200)).chars().count() == NAME_CHARS);
    }
}

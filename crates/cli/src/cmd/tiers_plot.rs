//! Drawing of the latency and bandwidth of tiers by access size.

use std::path::Path;

use cenote::{Error, ErrorKind, Profile, ProfilePoint};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::tiers::{rate, time};

const SIZE: (u32, u32) = (1280, 560);
const MARGIN: u32 = 12;
pub const FONT: &str = "sans-serif";
/// Colours of the tiers, distinguishable with colour blindness too (Okabe and Ito).
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

/// Draws measurements into a file.
pub fn draw(file: &Path, tiers: &[(&str, &Profile)]) -> cenote::Result<()> {
    if tiers.iter().all(|(_, profile)| profile.points.is_empty()) {
        return Err(Error::new(ErrorKind::NotFound, "a plot of the tiers")
            .because("nothing was measured yet")
            .try_next("measure them: cenote tiers --measure --plot FILE.svg"));
    }
    let mut text = String::new();
    render(&mut text, tiers).map_err(|why| Error::new(ErrorKind::Internal, "a plot of the tiers").because(why))?;
    std::fs::write(file, text).map_err(|error| Error::io(format!("plot {}", file.display()), &error))
}

/// A tier's line: access size, and latency or bandwidth.
type Line = Vec<(f64, f64)>;

/// Returns the median latency of single accesses in one direction, by size.
fn latencies(profile: &Profile, is_write: bool) -> Line {
    let fits = |point: &&ProfilePoint| point.is_write == is_write && point.parallel == 1;
    profile.points.iter().filter(fits).map(|point| (f64::from(point.bytes), point.p50_ns.max(1) as f64)).collect()
}

/// Returns the best bandwidth at any parallelism in one direction, by size.
fn bandwidths(profile: &Profile, is_write: bool) -> Line {
    let mut line: Line = Vec::new();
    for point in profile.points.iter().filter(|point| point.is_write == is_write) {
        let bytes = f64::from(point.bytes);
        match line.iter_mut().find(|(at, _)| at.to_bits() == bytes.to_bits()) {
            Some((_, best)) => *best = best.max(point.bandwidth),
            None => line.push((bytes, point.bandwidth)),
        }
    }
    line.sort_by(|a, b| a.0.total_cmp(&b.0));
    line
}

fn render(text: &mut String, tiers: &[(&str, &Profile)]) -> Result<(), String> {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    area.fill(&WHITE).map_err(|e| failed(&e))?;
    let halves = area.split_evenly((1, 2));
    panel(
        &halves[0],
        tiers,
        "Latency: median of one access at a time",
        latencies,
        time,
        SeriesLabelPosition::UpperLeft,
    )?;
    panel(
        &halves[1],
        tiers,
        "Bandwidth: the best of 1 to 8 accesses at once",
        bandwidths,
        rate,
        SeriesLabelPosition::LowerRight,
    )?;
    area.present().map_err(|e| failed(&e))
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    tiers: &[(&str, &Profile)],
    caption: &str,
    line_of: fn(&Profile, bool) -> Line,
    words: fn(f64) -> String,
    legend: SeriesLabelPosition,
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let all: Line = tiers
        .iter()
        .flat_map(|(_, profile)| [false, true].into_iter().flat_map(|is_write| line_of(profile, is_write)))
        .collect();
    let bounds = |of: fn(&(f64, f64)) -> f64, room: f64| {
        let (least, most) = all.iter().map(of).fold((f64::MAX, 0.0), |(a, b), value| (value.min(a), value.max(b)));
        (least / room, most * room)
    };
    let ((x0, x1), (y0, y1)) = (bounds(|at| at.0, 1.3), bounds(|at| at.1, 1.6));
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 18))
        .margin(MARGIN)
        .x_label_area_size(44)
        .y_label_area_size(78)
        .build_cartesian_2d(Decades::new(x0, x1, 4.0), Decades::new(y0, y1, 10.0))
        .map_err(|e| failed(&e))?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("bytes of an access")
        .x_label_formatter(&|bytes| cenote::model::size::human(bytes.round() as u64))
        .y_label_formatter(&|value| words(*value))
        .label_style((FONT, 13))
        .x_labels(12)
        .y_labels(12)
        .draw()
        .map_err(|e| failed(&e))?;
    for ((name, profile), colour) in tiers.iter().zip(COLOURS.iter().cycle()) {
        for is_write in [false, true] {
            let line = line_of(profile, is_write);
            if line.is_empty() {
                continue;
            }
            let style = ShapeStyle { color: colour.to_rgba(), filled: !is_write, stroke_width: 2 };
            let drawn = if is_write {
                chart.draw_series(DashedLineSeries::new(line.iter().copied(), 6, 4, style))
            } else {
                chart.draw_series(LineSeries::new(line.iter().copied(), style))
            };
            let what = if is_write { "write" } else { "read" };
            drawn.map_err(|e| failed(&e))?.label(format!("{name}, {what}")).legend(move |(x, y)| {
                let end = if is_write { x + 9 } else { x + 20 };
                PathElement::new([(x, y), (end, y)], style)
            });
            chart
                .draw_series(PointSeries::of_element(line, 4, style, &|at, size, style| Circle::new(at, size, style)))
                .map_err(|e| failed(&e))?;
        }
    }
    chart
        .configure_series_labels()
        .position(legend)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 13))
        .draw()
        .map_err(|e| failed(&e))
}

/// A logarithmic axis with a mark at each power of its base (4 for sizes), which the library lacks.
struct Decades {
    range: (f64, f64),
    base: f64,
}

impl Decades {
    fn new(least: f64, most: f64, base: f64) -> Self {
        Self { range: (least.max(f64::MIN_POSITIVE), most.max(least * 2.0)), base }
    }
}

impl Ranged for Decades {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value / self.range.0).ln() / (self.range.1 / self.range.0).ln();
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }
    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let (first, last) = (self.range.0.log(self.base).ceil() as i32, self.range.1.log(self.base).floor() as i32);
        let step = ((last - first) as usize / hint.max_num_points().max(1) + 1).max(1);
        (first..=last).step_by(step).map(|power| self.base.powi(power)).collect()
    }
    fn range(&self) -> std::ops::Range<f64> {
        self.range.0..self.range.1
    }
}

/// Labels come from the axes' own formatters.
impl ValueFormatter<f64> for Decades {
    fn format_ext(&self, value: &f64) -> String {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_drawn() {
        let point = |is_write, bytes: u32| ProfilePoint {
            is_write,
            bytes,
            parallel: 1,
            p50_ns: 1000 + u64::from(bytes) / 4,
            p99_ns: 9000 + u64::from(bytes),
            bandwidth: f64::from(bytes) * 1e4,
        };
        let sizes = [4096, 65_536, 1 << 20, 4 << 20];
        let points = sizes.iter().flat_map(|bytes| [point(false, *bytes), point(true, *bytes)]).collect();
        let (fast, unknown) = (Profile { unix_ms: 1, points }, Profile::default());
        let mut text = String::new();
        render(&mut text, &[("ram & co", &fast), ("new", &unknown)]).unwrap();
        assert!(text.starts_with("<svg") && text.contains("</svg>"), "{text}");
        assert!(text.contains("ram &amp; co, read") && text.contains("4.0 KiB"), "{text}");
        assert!(!text.contains("new, read"), "what was not measured has no line");
        assert!(text.matches("<circle").count() >= 16, "a mark for each point in both panels");
        let file = std::env::temp_dir().join(format!("cenote-plot-{}.svg", std::process::id()));
        let error = draw(&file, &[("new", &unknown)]).unwrap_err();
        assert!(error.next_step().contains("--measure") && !file.exists());
        draw(&file, &[("ram", &fast)]).unwrap();
        std::fs::remove_file(&file).unwrap();
    }
}

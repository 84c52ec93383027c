//! Line charts over the number of nodes, as SVG.

use std::fmt::Write;

/// A curve.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it shows.
    pub name: String,
    /// Nodes and value; values that are not positive are left out.
    pub points: Vec<(f64, f64)>,
}

/// Curves in one frame. Both axes are logarithmic.
#[derive(Clone, Debug)]
pub struct Chart {
    /// File name without its ending.
    pub file: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// What the values are, with their unit.
    pub unit: &'static str,
    /// The curves.
    pub lines: Vec<Line>,
    /// A value that matters, and why.
    pub bar: Option<(f64, &'static str)>,
}

/// Distinguishable with colour blindness too (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5a5a5a"];
const WIDTH: f64 = 720.0;
const PLOT: (f64, f64, f64, f64) = (70.0, 40.0, 430.0, 330.0);

/// From values to pixels.
struct Scale {
    x: (f64, f64),
    y: (f64, f64),
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        let points = chart.lines.iter().flat_map(|line| &line.points).filter(|(_, value)| *value > 0.0);
        let wide = |of: fn(&(f64, f64)) -> f64| {
            points.clone().map(of).fold((f64::MAX, f64::MIN_POSITIVE), |(a, b), value| (a.min(value), b.max(value)))
        };
        let (x, mut y) = (wide(|point| point.0), wide(|point| point.1));
        if let Some((bar, _)) = chart.bar {
            y = (y.0.min(bar), y.1.max(bar));
        }
        // A curve that hardly rises is not blown up.
        let room = f64::max(1.0, 4.0 / (y.1 / y.0)).sqrt() * 1.15;
        Self { x: (x.0.log10(), x.1.log10()), y: ((y.0 / room).log10(), (y.1 * room).log10()) }
    }
    fn x(&self, nodes: f64) -> f64 {
        let (left, _, right, _) = PLOT;
        left + (nodes.log10() - self.x.0) / (self.x.1 - self.x.0).max(1e-9) * (right - left)
    }
    fn y(&self, value: f64) -> f64 {
        let (_, top, _, bottom) = PLOT;
        bottom - (value.log10() - self.y.0) / (self.y.1 - self.y.0).max(1e-9) * (bottom - top)
    }
    /// Round values between the bounds of an axis: decades, and with few of them their parts.
    fn ticks(bounds: (f64, f64)) -> Vec<f64> {
        let steps: &[f64] = if bounds.1 - bounds.0 > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = bounds.0.floor() as i32..=bounds.1.ceil() as i32;
        let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
        all.filter(|value| (bounds.0 - 1e-9..=bounds.1 + 1e-9).contains(&value.log10())).collect()
    }
}

/// A number as people write it on an axis.
pub fn number(value: f64) -> String {
    let (scaled, suffix) = match value {
        value if value >= 1e9 => (value / 1e9, " G"),
        value if value >= 1e6 => (value / 1e6, " M"),
        value if value >= 1e4 => (value / 1e3, " k"),
        value => (value, ""),
    };
    let digits = if scaled >= 100.0 || (scaled >= 1.0 && (scaled - scaled.round()).abs() < 1e-9) {
        0
    } else if scaled >= 10.0 {
        1
    } else if scaled >= 0.1 {
        2
    } else {
        4
    };
    format!("{scaled:.digits$}{suffix}")
}

impl Chart {
    /// The picture.
    pub fn svg(&self) -> String {
        let scale = Scale::of(self);
        let (left, top, right, bottom) = PLOT;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"375\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"18\" \
             font-size=\"14\">{}</text>\n<text x=\"10\" y=\"33\">{}</text>\n",
            self.title, self.unit
        );
        for nodes in Scale::ticks(scale.x) {
            let x = scale.x(nodes);
            let _ = writeln!(
                out,
                "<path d=\"M{x:.0} {top}V{bottom}\" stroke=\"#ddd\"/><text x=\"{x:.0}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 15.0,
                number(nodes)
            );
        }
        for value in Scale::ticks(scale.y) {
            let y = scale.y(value);
            let _ = writeln!(
                out,
                "<path d=\"M{left} {y:.0}H{right}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                y + 4.0,
                number(value)
            );
        }
        let middle = f64::midpoint(left, right);
        let _ = writeln!(out, "<text x=\"{middle:.0}\" y=\"{}\" text-anchor=\"middle\">nodes</text>", bottom + 32.0);
        if let Some((bar, why)) = self.bar {
            let y = scale.y(bar);
            let _ = writeln!(
                out,
                "<path d=\"M{left} {y:.0}H{right}\" stroke=\"#b00\" stroke-dasharray=\"5 4\"/><text x=\"{}\" y=\"{:.0}\" fill=\"#b00\">{why}</text>",
                left + 6.0,
                y - 4.0
            );
        }
        for (at, line) in self.lines.iter().enumerate() {
            draw(line, at, &scale, &mut out);
        }
        out + "</svg>\n"
    }
}

fn draw(line: &Line, at: usize, scale: &Scale, out: &mut String) {
    let colour = COLOURS[at % COLOURS.len()];
    let points: Vec<(f64, f64)> = line.points.iter().copied().filter(|(_, value)| *value > 0.0).collect();
    let path: Vec<String> =
        points.iter().map(|(nodes, value)| format!("{:.1},{:.1}", scale.x(*nodes), scale.y(*value))).collect();
    let _ =
        writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", path.join(" "));
    for (nodes, value) in points {
        let (x, y) = (scale.x(nodes), scale.y(value));
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
    }
    let (x, y) = (PLOT.2 + 14.0, PLOT.1 + 12.0 + 18.0 * at as f64);
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"{y}\">{}</text>",
        y - 9.0,
        x + 15.0,
        line.name
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_in_the_frame_and_what_is_no_value_is_left_out() {
        let points = vec![(10.0, 0.5), (100.0, 0.0), (1000.0, 7e6)];
        let line = Line { name: "a".into(), points };
        let bar = Some((3.0, "enough"));
        let chart = Chart { file: "x", title: "t", unit: "u", lines: vec![line], bar };
        let (scale, svg) = (Scale::of(&chart), chart.svg());
        assert_eq!(svg.matches("<circle").count(), 2);
        for (nodes, value) in [(10.0, 0.5), (1000.0, 7e6)] {
            let (left, top, right, bottom) = PLOT;
            assert!((left..=right).contains(&scale.x(nodes)) && (top..=bottom).contains(&scale.y(value)));
        }
        assert!(scale.y(7e6) < scale.y(0.5) && svg.contains("enough") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn numbers_are_short() {
        let all = [0.0123, 0.25, 1.0, 2.5, 12.34, 9_876.0, 12_345.0, 2.5e6, 3e9].map(number);
        assert_eq!(all, ["0.0123", "0.25", "1", "2.50", "12.3", "9876", "12.3 k", "2.50 M", "3 G"]);
    }
}

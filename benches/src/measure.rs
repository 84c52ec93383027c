//! Measures alternating pairs, and reports medians as a table and as lines of JSON.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use crate::Outcome;

/// Settings from the command line.
pub struct Settings {
    only: Vec<String>,
    /// Does a tenth of the work, for a quick look.
    pub quick: bool,
    pairs: usize,
    /// Directory for stores and files on a file system.
    pub dir: PathBuf,
    /// Only lists the benches.
    pub list: bool,
}

impl Settings {
    /// Parses the command line.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut settings =
            Self { only: Vec::new(), quick: false, pairs: 5, dir: PathBuf::from("target/bench-data"), list: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--only" => settings.only.extend(value()?.split(',').map(str::to_owned)),
                "--pairs" => settings.pairs = value()?.parse().map_err(|_| "--pairs needs a number".to_owned())?,
                "--dir" => settings.dir = value()?.into(),
                "--quick" => settings.quick = true,
                "--list" => settings.list = true,
                _ => return Err(format!("unknown option {word}")),
            }
        }
        Ok(settings)
    }
    /// Scales a count: a tenth of it with `--quick`.
    pub fn scaled(&self, count: u64) -> u64 {
        if self.quick { (count / 10).max(1) } else { count }
    }
}

struct Line {
    bar: String,
    unit: &'static str,
    value: f64,
    reference_name: String,
    reference: f64,
    ratio: f64,
    low: f64,
    high: f64,
    wanted: Option<f64>,
    lower_is_better: bool,
}

/// Collects the measurements.
pub struct Report {
    /// The settings.
    pub settings: Settings,
    lines: Vec<Line>,
    skipped: Vec<(String, String)>,
    elsewhere: Vec<(&'static str, &'static str, &'static str)>,
    now: String,
}

/// A reference, and the bar relative to it.
pub struct Beside<'a> {
    /// Its name.
    pub name: &'a str,
    /// The bar: the ratio to reach (ours / reference).
    pub wanted: Option<f64>,
    /// Measures it once, in the bar's unit.
    pub run: &'a mut dyn FnMut() -> Outcome<f64>,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.is_empty() { f64::NAN } else { sorted[sorted.len() / 2] }
}

/// Operations per second.
pub fn rate(count: u64, work: impl FnOnce() -> Outcome) -> Outcome<f64> {
    let begin = Instant::now();
    work()?;
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

impl Report {
    /// Empty.
    pub fn new(settings: Settings) -> Self {
        Self { settings, lines: Vec::new(), skipped: Vec::new(), elsewhere: Vec::new(), now: String::new() }
    }
    /// Returns true if this bench was requested by its name, or the beginning of it.
    pub fn wants_by_name(&self, name: &str) -> bool {
        self.settings.only.iter().any(|only| only.len() > "store.".len() && name.starts_with(only.as_str()))
    }
    /// Records a bar that another command measures.
    pub fn elsewhere(&mut self, bar: &'static str, command: &'static str, wanted: &'static str) {
        if self.wants(bar) {
            self.elsewhere.push((bar, command, wanted));
        }
    }
    /// Returns true if this bench was requested.
    pub fn wants(&self, name: &str) -> bool {
        self.settings.only.is_empty() || self.settings.only.iter().any(|only| name.contains(only.as_str()))
    }
    /// Announces the next bench.
    pub fn begin(&mut self, name: &str) {
        name.clone_into(&mut self.now);
        eprintln!("… {name}");
    }
    /// Records that a bench could not be measured.
    pub fn skip(&mut self, name: &str, why: &str) {
        eprintln!("  {name} could not be measured: {why}");
        self.skipped.push((name.to_owned(), why.to_owned()));
    }
    /// Measures ours and each reference in turn, `pairs` times, after one turn that does not count.
    pub fn pairs(
        &mut self,
        bar: &str,
        unit: &'static str,
        ours: &mut dyn FnMut() -> Outcome<f64>,
        references: &mut [Beside<'_>],
    ) -> Outcome {
        let rounds = self.settings.pairs.max(if self.settings.quick { 1 } else { 5 });
        let mut own = Vec::new();
        let mut others: Vec<Vec<f64>> = references.iter().map(|_| Vec::new()).collect();
        for round in 0..=rounds {
            let value = ours()?;
            let mut values = Vec::new();
            for reference in references.iter_mut() {
                values.push((reference.run)()?);
            }
            if round > 0 {
                own.push(value);
                for (kept, value) in others.iter_mut().zip(values) {
                    kept.push(value);
                }
            }
        }
        for (reference, values) in references.iter().zip(&others) {
            let mut ratios: Vec<f64> = own.iter().zip(values).map(|(own, other)| own / other).collect();
            ratios.sort_by(f64::total_cmp);
            self.push(Line {
                bar: bar.to_owned(),
                unit,
                value: median(&own),
                reference_name: reference.name.to_owned(),
                reference: median(values),
                ratio: median(&ratios),
                low: ratios[0],
                high: ratios[ratios.len() - 1],
                wanted: reference.wanted,
                lower_is_better: false,
            });
        }
        Ok(())
    }
    /// Records a figure with a fixed upper bound.
    pub fn limit(&mut self, bar: &str, unit: &'static str, value: f64, limit_name: &str, limit: f64) {
        let ratio = value / limit;
        self.push(Line {
            bar: bar.to_owned(),
            unit,
            value,
            reference_name: limit_name.to_owned(),
            reference: limit,
            ratio,
            low: ratio,
            high: ratio,
            wanted: Some(1.0),
            lower_is_better: true,
        });
    }
    /// Records a figure without a bar, beside another of its kind.
    pub fn note(&mut self, bar: &str, unit: &'static str, value: f64, reference_name: &str, reference: f64) {
        let ratio = value / reference;
        self.push(Line {
            bar: bar.to_owned(),
            unit,
            value,
            reference_name: reference_name.to_owned(),
            reference,
            ratio,
            low: ratio,
            high: ratio,
            wanted: None,
            lower_is_better: false,
        });
    }
    fn push(&mut self, line: Line) {
        eprintln!("  {} ({})", line.text(), self.now);
        self.lines.push(line);
    }
    /// Prints the table and writes the lines of JSON.
    pub fn finish(self) -> Outcome {
        println!("\n{:<26} {:>12} {:<8} {:<38} {:>12} {:>7}  spread", "bar", "value", "unit", "reference", "", "ratio");
        for line in &self.lines {
            println!("{}", line.text());
        }
        for (bar, command, wanted) in &self.elsewhere {
            println!("{bar:<26} by `{command}`: {wanted}");
        }
        for (name, why) in &self.skipped {
            println!("{name:<26} NOT MEASURED: {why}");
        }
        std::fs::create_dir_all("target")?;
        let mut file = std::fs::File::create("target/bench.jsonl")?;
        for line in &self.lines {
            writeln!(file, "{}", line.json())?;
        }
        for (bar, command, wanted) in &self.elsewhere {
            writeln!(
                file,
                "{{\"bar\":\"{bar}\",\"value\":null,\"unit\":null,\"reference_name\":\"{wanted}\",\"reference\":null,\"ratio\":null,\"command\":\"{command}\"}}"
            )?;
        }
        Ok(())
    }
}

impl Line {
    fn met(&self) -> Option<bool> {
        let wanted = self.wanted?;
        Some(if self.lower_is_better { self.ratio <= wanted } else { self.ratio >= wanted })
    }
    fn text(&self) -> String {
        let verdict = match self.met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        let mut text = format!(
            "{:<26} {:>12} {:<8} {:<38} {:>12} {:>6.2}x  {:.2}-{:.2}",
            self.bar,
            short(self.value),
            self.unit,
            self.reference_name,
            short(self.reference),
            self.ratio,
            self.low,
            self.high
        );
        if let Some(wanted) = self.wanted {
            let sign = if self.lower_is_better { "≤" } else { "≥" };
            let _ = write!(text, "  {sign} {wanted:.2} {verdict}");
        }
        text
    }
    fn json(&self) -> String {
        let wanted = self.wanted.map_or("null".to_owned(), |wanted| wanted.to_string());
        let met = self.met().map_or("null".to_owned(), |met| met.to_string());
        format!(
            "{{\"bar\":\"{}\",\"value\":{:.3},\"unit\":\"{}\",\"reference_name\":\"{}\",\"reference\":{:.3},\"ratio\":{:.4},\"ratio_low\":{:.4},\"ratio_high\":{:.4},\"wanted\":{wanted},\"met\":{met}}}",
            self.bar, self.value, self.unit, self.reference_name, self.reference, self.ratio, self.low, self.high
        )
    }
}

fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{:.3}M", value / 1e6),
        v if v >= 1e4 => format!("{:.1}k", value / 1e3),
        _ => format!("{value:.2}"),
    }
}

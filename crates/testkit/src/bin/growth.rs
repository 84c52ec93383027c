//! Growth on paper: `growth [--scales N,N] [--seed N] [--set FIGURE=VALUE] [--only NAME,NAME] [--pictures DIR]`
//!
//! Prints a table for each study, and draws curves into a directory if one is named. `docs/growth.md` explains them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use cenote_testkit::growth::figures::Figures;
use cenote_testkit::growth::study::{ALL, SCALES, Terms};

/// What the words of the command ask for.
struct Asked {
    terms: Terms,
    only: Vec<String>,
    pictures: Option<PathBuf>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match asked(&words).and_then(|asked| study(&asked)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("growth: {message}");
            ExitCode::FAILURE
        }
    }
}

fn asked(words: &[String]) -> Result<Asked, String> {
    let terms = Terms { figures: Figures::measured(), scales: SCALES.to_vec(), seed: 20_261_127 };
    let mut asked = Asked { terms, only: Vec::new(), pictures: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        match word.as_str() {
            "--scales" => asked.terms.scales = scales(value)?,
            "--seed" => asked.terms.seed = value.parse().map_err(|_| format!("`{value}` is no seed"))?,
            "--set" => set(&mut asked.terms.figures, value)?,
            "--only" => asked.only = value.split(',').map(str::to_string).collect(),
            "--pictures" => asked.pictures = Some(PathBuf::from(value)),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    let unknown = asked.only.iter().find(|name| !ALL.iter().any(|(known, _)| known == name));
    match unknown {
        Some(name) => Err(format!("no study `{name}`: there are {}", ALL.map(|(name, _)| name).join(", "))),
        None => Ok(asked),
    }
}

fn scales(text: &str) -> Result<Vec<usize>, String> {
    let parse = |word: &str| word.parse().ok().filter(|nodes| (8..=60_000).contains(nodes));
    let scales: Option<Vec<usize>> = text.split(',').map(parse).collect();
    scales.ok_or(format!("`{text}` are no numbers of nodes from 8 to 60,000"))
}

fn set(figures: &mut Figures, text: &str) -> Result<(), String> {
    let (name, value) = text.split_once('=').ok_or(format!("`{text}`: write FIGURE=VALUE"))?;
    let value: f64 = value.parse().map_err(|_| format!("`{value}` is no number"))?;
    if value <= 0.0 || !value.is_finite() {
        return Err(format!("{name} must be more than 0"));
    }
    if figures.set(name, value) { Ok(()) } else { Err(format!("no figure `{name}`: `--only figures` lists them")) }
}

fn study(asked: &Asked) -> Result<(), String> {
    println!("seed {}", asked.terms.seed);
    let begin = Instant::now();
    for (name, make) in ALL {
        if !asked.only.is_empty() && !asked.only.iter().any(|wanted| wanted == name) {
            continue;
        }
        let begin = Instant::now();
        let study = make(&asked.terms);
        for table in &study.tables {
            println!("\n{}", table.markdown().trim_end());
        }
        for chart in study.charts.iter().filter(|_| asked.pictures.is_some()) {
            let path = asked.pictures.clone().unwrap_or_default().join(format!("{}.svg", chart.file));
            std::fs::write(&path, chart.svg()).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        eprintln!("{name}: {:.1} s", begin.elapsed().as_secs_f64());
    }
    eprintln!("in all {:.1} s", begin.elapsed().as_secs_f64());
    Ok(())
}

//! The table and the chart.

use std::fmt::Write;

use crate::traces::{Op, Trace};
use crate::{POLICIES, Row};

/// Lower bound of every schedule: each access takes at least the fastest tier's time.
pub fn bound_s(trace: &Trace) -> f64 {
    let top = &crate::sim::tiers()[0].speed;
    let bytes: Vec<u64> = trace.objects.iter().flat_map(|o| vec![o.range_bytes; o.ranges as usize]).collect();
    let ns: f64 = (trace.clients.iter().flatten())
        .map(|op| match op {
            Op::Read(range) => top.read_ns(bytes[*range as usize]),
            Op::Write(range) => top.write_ns(bytes[*range as usize]),
            Op::Think(_) | Op::Barrier => 0.0,
        })
        .sum();
    ns / 1e9 / trace.clients.len() as f64
}

fn present(rows: &[Row]) -> usize {
    rows.first().map_or(0, |row| row.io_s.len())
}

pub fn print(title: &str, rows: &[Row]) {
    let count = present(rows);
    let names = POLICIES;
    println!("\n{title}: seconds of I/O");
    print!("{:<16}", "trace");
    for name in names {
        print!("{name:>14}");
    }
    println!("{:>10}{:>9}{:>9} | {:>9}{:>10}", "no fetch", "oracle", "bound", "to best", "to oracle");
    let (mut to_best, mut to_oracle) = (0.0, 0.0);
    let mut logs = vec![0.0; count];
    for row in rows {
        print!("{:<16}", row.trace);
        row.io_s.iter().for_each(|io_s| print!("{io_s:>14.3}"));
        let ours = row.io_s[count - 1];
        let best = row.io_s[..count - 1].iter().copied().fold(f64::INFINITY, f64::min);
        print!("{:>10.3}{:>9.3}{:>9.3}", row.blind_s, row.oracle_s, row.bound_s);
        println!(" | {:>9.2}{:>10.2}", ours / best, ours / row.oracle_s);
        to_best += ours / best / rows.len() as f64;
        to_oracle += ours / row.oracle_s / rows.len() as f64;
        row.io_s.iter().zip(&mut logs).for_each(|(io_s, log)| *log += (io_s / ours).ln() / rows.len() as f64);
    }
    print!("{:<16}", "× foresight");
    for log in logs {
        print!("{:>14.2}", log.exp());
    }
    println!("{:>28} | {to_best:>9.2}{to_oracle:>10.2}", "mean");
}

/// A bar chart: I/O time of each policy relative to the slowest, for each trace.
pub fn svg(title: &str, rows: &[Row]) -> String {
    const COLOURS: [&str; 8] = ["#9aa5b1", "#6c8ebf", "#82b366", "#d6b656", "#b085c5", "#b85450", "#444444", "#000000"];
    let names = POLICIES;
    let (bar, gap, left) = (12, 14, 130);
    let per_trace = (names.len() + 1) * bar + gap;
    let height = rows.len() * per_trace + 70;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"18\" font-size=\"14\">I/O time by policy, traces {title} (share of the slowest)</text>\n"
    );
    let mut x = 10;
    for (i, name) in names.iter().chain([&"oracle"]).enumerate() {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"28\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{}\" y=\"37\">{name}</text>",
            COLOURS[i],
            x + 14
        );
        x += 100;
    }
    for (i, row) in rows.iter().enumerate() {
        let top = 50 + i * per_trace;
        let most = row.io_s.iter().copied().fold(0.0, f64::max).max(1e-9);
        let _ = writeln!(out, "<text x=\"10\" y=\"{}\">{}</text>", top + per_trace / 2, row.trace);
        for (k, io_s) in row.io_s.iter().chain([&row.oracle_s]).enumerate() {
            let (y, width) = (top + k * bar, io_s / most * 520.0);
            let _ = writeln!(
                out,
                "<rect x=\"{left}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{}\" font-size=\"9\">{io_s:.2} s</text>",
                bar - 2,
                COLOURS[k],
                f64::from(left) + width + 4.0,
                y + bar - 3
            );
        }
    }
    out + "</svg>\n"
}

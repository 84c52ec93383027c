//! Standard output: tables and lines for people, one JSON document for programs. Does not panic when the reader
//! leaves.

use std::io::{self, BufWriter, Write};

use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Padding, Style};

use crate::failure::Done;

/// Output of commands.
pub struct Out {
    writer: BufWriter<Box<dyn Write>>,
    /// The user asked for JSON.
    pub json: bool,
}

impl Out {
    /// Writes to standard output.
    pub fn new(json: bool) -> Self {
        Self::to(Box::new(io::stdout()), json)
    }
    /// Writes elsewhere.
    pub fn to(writer: Box<dyn Write>, json: bool) -> Self {
        Self { writer: BufWriter::with_capacity(1 << 16, writer), json }
    }
    /// Writes a line.
    pub fn line(&mut self, text: impl AsRef<str>) -> Done {
        Ok(writeln!(self.writer, "{}", text.as_ref())?)
    }
    /// Writes bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> Done {
        Ok(self.writer.write_all(bytes)?)
    }
    /// Writes a JSON document.
    pub fn document(&mut self, value: &serde_json::Value) -> Done {
        serde_json::to_writer_pretty(&mut self.writer, value).map_err(io::Error::from)?;
        Ok(writeln!(self.writer)?)
    }
    /// Writes a table; columns whose title begins with `>` are right-aligned.
    pub fn table(&mut self, titles: &[&str], rows: &[Vec<String>]) -> Done {
        for line in layout(titles, rows) {
            self.line(line)?;
        }
        Ok(())
    }
    /// Flushes the buffer.
    pub fn flush(&mut self) -> Done {
        Ok(self.writer.flush()?)
    }
    /// Flushes the buffer at the end.
    pub fn finish(mut self) -> Done {
        Ok(self.writer.flush()?)
    }
}

/// Returns the lines of a table: columns two spaces apart, no borders, no trailing spaces.
fn layout(titles: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let mut cells = Builder::with_capacity(rows.len() + 1, titles.len());
    cells.push_record(titles.iter().map(|title| title.trim_start_matches('>')));
    for row in rows {
        cells.push_record(row);
    }
    let mut table = cells.build();
    table.with(Style::empty()).with(Padding::new(0, 2, 0, 0)).with(Alignment::left());
    for (column, _) in titles.iter().enumerate().filter(|(_, title)| title.starts_with('>')) {
        table.modify(Columns::one(column), Alignment::right());
    }
    table.to_string().lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Returns a bar of `width` cells, filled to `part` of `whole`; any non-zero part fills at least one cell.
pub fn bar(part: u64, whole: u64, width: usize) -> String {
    let share = if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) };
    let mut cells = (share * width as f64).round() as usize;
    if part > 0 {
        cells = cells.max(1);
    }
    format!("[{}{}]", "#".repeat(cells), ".".repeat(width - cells))
}

/// Converts bytes to text: printable characters unchanged, everything else as `\xNN`, a backslash doubled.
pub fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                c if c.is_control() => text.extend(c.to_string().bytes().map(|byte| format!("\\x{byte:02x}"))),
                c => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let lines = layout(&["name", ">size"], &[vec!["a".into(), "100".into()], vec!["long".into(), "1".into()]]);
        assert_eq!(lines, ["name  size", "a      100", "long     1"]);
    }

    #[test]
    fn values_may_have_any_length() {
        let long = "x".repeat(70_000);
        let lines = layout(&["key", "value", ">n"], &[vec![long.clone(), "v".into(), "7".into()]]);
        assert_eq!(lines[1], format!("{long}  v      7"));
        let lines = layout(&["key", ">value"], &[vec!["k".into(), long.clone()], vec!["l".into(), "1".into()]]);
        assert_eq!(lines[1], format!("k    {long}"));
        assert_eq!(lines[2].len(), 70_005);
    }

    #[test]
    fn tables_without_rows_have_their_titles() {
        assert_eq!(layout(&["name", ">size"], &[]), ["name  size"]);
        assert_eq!(
            layout(&["a", "b"], &[vec![String::new(), "x".into()], vec!["y".into(), String::new()]]),
            ["a  b", "   x", "y"]
        );
    }

    #[test]
    fn bars_show_what_is_there() {
        assert_eq!(bar(0, 10, 4), "[....]");
        assert_eq!(bar(1, 1_000_000, 4), "[#...]");
        assert_eq!(bar(5, 10, 4), "[##..]");
        assert_eq!(bar(20, 10, 4), "[####]");
        assert_eq!(bar(0, 0, 4), "[....]");
    }

    #[test]
    fn bytes_show_without_harming_the_terminal() {
        assert_eq!(escaped(b"plain \xc3\xa9 \x1b[2J \xff \\ \n"), "plain \u{e9} \\x1b[2J \\xff \\\\ \\n");
    }
}

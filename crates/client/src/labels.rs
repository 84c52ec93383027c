//! Labels of a cluster's containers at their homes: inner ones, which nobody asks for. This file must not know where the
//! labels are kept that people use.

use cenote_model::{Error, LABEL_BYTES_MAX};

/// Ends the part of an inner label that is for people.
const END: char = '\u{1f}';
/// Bytes of an inner label behind that part.
const TAIL_BYTES: usize = 17;

/// The label of a container at its home, for one that people call `label`.
pub(crate) fn inner_label(label: &str, random: u64) -> String {
    let end = label.floor_char_boundary(LABEL_BYTES_MAX - TAIL_BYTES);
    format!("{}{END}{random:016x}", &label[..end])
}

/// The part of a label that is for people.
pub(crate) fn outer_label(label: &str) -> &str {
    label.split(END).next().unwrap_or(label)
}

/// The error with labels as people know them, if it names inner ones.
pub(crate) fn plain(error: Error) -> Error {
    let parts = [error.subject(), error.cause(), error.next_step()];
    if !parts.iter().any(|part| part.contains(END)) {
        return error;
    }
    let [subject, cause, next] = parts.map(without_tails);
    Error::new(error.kind(), subject).because(cause).try_next(next)
}

/// A text with labels as people know them.
pub(crate) fn without_tails(text: &str) -> String {
    let mut parts = text.split(END);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.get(TAIL_BYTES - 1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use cenote_model::ErrorKind;

    use super::*;

    #[test]
    fn inner_labels_show_what_people_call_it_and_fit() {
        let inner = inner_label("runs", 7);
        assert_eq!((inner.as_str(), outer_label(&inner)), ("runs\u{1f}0000000000000007", "runs"));
        let long = "ü".repeat(LABEL_BYTES_MAX / 2);
        let inner = inner_label(&long, u64::MAX);
        assert!(inner.len() <= LABEL_BYTES_MAX && long.starts_with(outer_label(&inner)));
        assert_ne!(inner_label("runs", 8), inner_label("runs", 7));
        assert_eq!(outer_label("plain"), "plain");
        let error = Error::new(ErrorKind::LimitExceeded, format!("container `{}`", inner_label("runs", 3)));
        assert_eq!(plain(error.clone().because("full")), Error::new(error.kind(), "container `runs`").because("full"));
    }
}

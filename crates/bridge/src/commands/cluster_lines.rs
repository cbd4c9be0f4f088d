//! A pod's output over several connections, each line once.
//!
//! Every connection gives lines with their times, from a while before the newest one that was shown. A line is known by its
//! time, and lines of the same time by their number: a count of lines alone would be wrong once the node has rotated the
//! file, and the newest time alone would be, as two streams of one container may pass each other.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// How far lines may come out of their order.
const DISORDER: SignedDuration = SignedDuration::from_secs(2);
/// Nothing longer is a time.
const LONGEST_TIME: usize = 40;

/// What of a pod's output has been shown.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Whole lines by time, not older than a new connection begins.
    shown: BTreeMap<Timestamp, usize>,
    /// A line that was shown in part, and how many bytes of it.
    begun: Option<(Timestamp, usize)>,
    /// Lines of this connection that were shown by an earlier one.
    repeated: BTreeMap<Timestamp, usize>,
    place: Place,
}

/// Where in a line this connection is.
#[derive(Debug)]
enum Place {
    Time(Vec<u8>),
    Text { time: Option<Timestamp>, hidden: Hidden },
}

impl Default for Place {
    fn default() -> Self {
        Self::Time(Vec::new())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hidden {
    /// The whole line was shown before.
    All,
    /// So many more bytes were.
    Bytes(usize),
}

impl Lines {
    /// Begins a connection, and tells from when on it has to give lines; in whole seconds, as the API takes nothing finer.
    pub(super) fn connect(&mut self) -> Option<Timestamp> {
        self.place = Place::default();
        self.repeated.clone_from(&self.shown);
        let newest = self.shown.last_key_value().map(|(time, _)| *time).max(self.begun.map(|(time, _)| time))?;
        Some(reach(newest))
    }

    /// Takes bytes of the connection, and adds those that are new to `out`.
    pub(super) fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some((&first, rest)) = bytes.split_first() {
            match &mut self.place {
                Place::Time(text) => {
                    bytes = rest;
                    text.push(first);
                    if matches!(first, b' ' | b'\n') || text.len() > LONGEST_TIME {
                        let text = std::mem::take(text);
                        self.begin(&text, out);
                    }
                }
                Place::Text { time, hidden } => {
                    let (time, hidden) = (*time, *hidden);
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                    bytes = rest;
                    self.show(time, hidden, piece, out);
                    if end.is_some() {
                        self.finish(time, hidden);
                    }
                }
            }
        }
    }

    /// A line begins; `text` is its time, or its own beginning if it has none.
    fn begin(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let time = text.strip_suffix(b" ").and_then(|time| std::str::from_utf8(time).ok()?.parse::<Timestamp>().ok());
        let again = time.and_then(|time| self.repeated.get_mut(&time)).filter(|count| **count > 0);
        let hidden = if let Some(count) = again {
            *count -= 1;
            Hidden::All
        } else {
            match self.begun.take() {
                Some((begun, bytes)) if Some(begun) == time => {
                    self.begun = Some((begun, bytes));
                    Hidden::Bytes(bytes)
                }
                // The rest of that line will never come.
                Some(_) => {
                    out.push(b'\n');
                    Hidden::Bytes(0)
                }
                None => Hidden::Bytes(0),
            }
        };
        if time.is_none() {
            out.extend_from_slice(text);
        }
        let whole = time.is_none() && text.ends_with(b"\n");
        self.place = if whole { Place::default() } else { Place::Text { time, hidden } };
    }

    fn show(&mut self, time: Option<Timestamp>, hidden: Hidden, piece: &[u8], out: &mut Vec<u8>) {
        let Hidden::Bytes(before) = hidden else { return };
        let new = piece.get(before..).unwrap_or_default();
        out.extend_from_slice(new);
        self.place = Place::Text { time, hidden: Hidden::Bytes(before.saturating_sub(piece.len())) };
        if let Some(time) = time {
            let shown = self.begun.filter(|(begun, _)| *begun == time).map_or(0, |(_, bytes)| bytes);
            self.begun = Some((time, shown + new.len()));
        }
    }

    fn finish(&mut self, time: Option<Timestamp>, hidden: Hidden) {
        self.place = Place::default();
        let Some(time) = time.filter(|_| hidden != Hidden::All) else { return };
        self.begun = None;
        *self.shown.entry(time).or_default() += 1;
        if let Some((newest, _)) = self.shown.last_key_value() {
            self.shown = self.shown.split_off(&reach(*newest));
        }
    }
}

/// From when on a connection has to give lines, if this was the newest.
fn reach(newest: Timestamp) -> Timestamp {
    let from = newest.checked_sub(DISORDER).unwrap_or(newest);
    Timestamp::from_second(from.as_second()).unwrap_or(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2024-05-01T10:00:00.100000000Z one\n\
                       2024-05-01T10:00:00.100000000Z one\n\
                       2024-05-01T10:00:01.300000000Z three\n\
                       2024-05-01T10:00:01.200000000Z two, late\n\
                       2024-05-01T10:00:09.000000000Z \n\
                       2024-05-01T10:00:09.500000000Z last\n";
    const TEXT: &str = "one\none\nthree\ntwo, late\n\nlast\n";

    /// What a node gives from a time on.
    fn since(log: &str, from: Option<Timestamp>) -> String {
        let wanted = |line: &&str| line.split(' ').next().unwrap().parse::<Timestamp>().unwrap() >= from.unwrap();
        log.split_inclusive('\n').filter(|line| from.is_none() || wanted(line)).collect()
    }

    fn shown(lines: &mut Lines, text: &str) -> String {
        let mut out = Vec::new();
        // In pieces, as networks do.
        for piece in text.as_bytes().chunks(7) {
            lines.take(piece, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_line_is_shown_once_wherever_the_connection_breaks() {
        for first in 0..=LOG.len() {
            for second in [0, 40, LOG.len() / 2, LOG.len()] {
                let mut lines = Lines::default();
                let mut text = String::new();
                for cut in [first, second, LOG.len()] {
                    let given = since(LOG, lines.connect());
                    text += &shown(&mut lines, &given[..cut.min(given.len())]);
                }
                assert_eq!(text, TEXT, "broken after {first}, then after {second}");
            }
        }
    }

    #[test]
    fn lines_of_a_file_that_was_rotated_are_not_taken_for_shown_ones() {
        let mut lines = Lines::default();
        lines.connect();
        shown(&mut lines, &LOG[..LOG.len() / 2]);
        lines.connect();
        let rotated = "2024-05-01T10:00:02.000000000Z after\n";
        assert!(shown(&mut lines, rotated).ends_with("after\n"));
    }

    #[test]
    fn what_has_no_time_is_shown_as_it_is() {
        let mut lines = Lines::default();
        lines.connect();
        let text = "unable to retrieve container logs for containerd://0123456789abcdef0123456789\n\nx\n";
        assert_eq!(shown(&mut lines, text), text);
    }

    #[test]
    fn little_is_remembered_of_a_long_output() {
        let mut lines = Lines::default();
        lines.connect();
        for second in 0..1000 {
            let time = Timestamp::from_second(second).unwrap();
            shown(&mut lines, &format!("{time} line\n"));
        }
        assert!(lines.shown.len() <= 4, "{}", lines.shown.len());
    }
}

//! The text of a log out of `{"logs": "…"}`, piece by piece: a log may be larger than the memory of this process.

use bytes::{Bytes, BytesMut};

/// Reads the one text of an answer, whatever pieces it comes in.
#[derive(Debug, Default)]
pub(super) struct LogDecoder {
    state: State,
    /// Hexadecimal digits of an escape so far.
    digits: Vec<u8>,
    /// The first half of a character that is escaped in two halves.
    high: Option<u16>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the text; so many bytes of the beginning are there.
    #[default]
    Start,
    /// After the name `"logs"`.
    Colon,
    /// After the colon.
    Value,
    Text,
    /// After a backslash.
    Escape,
    /// Within `\uXXXX`.
    Hex,
    End,
}

/// The answer is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not a log")]
pub(super) struct NotALog;

const NAME: &[u8] = b"\"logs\"";

impl LogDecoder {
    /// The text that this piece holds.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<Bytes, NotALog> {
        let mut text = BytesMut::with_capacity(piece.len());
        let mut rest = piece;
        while let Some((&byte, tail)) = rest.split_first() {
            if self.state == State::Text {
                // Most of a log is plain.
                let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(rest.len());
                if plain > 0 {
                    self.flush_high(&mut text);
                    text.extend_from_slice(rest.get(..plain).unwrap_or_default());
                    rest = rest.get(plain..).unwrap_or_default();
                    continue;
                }
            }
            rest = tail;
            self.step(byte, &mut text)?;
        }
        Ok(text.freeze())
    }

    /// Whether the text has come to its end.
    pub(super) fn is_complete(&self) -> bool {
        self.state == State::End
    }

    fn step(&mut self, byte: u8, text: &mut BytesMut) -> Result<(), NotALog> {
        self.state = match (self.state, byte) {
            (State::Start | State::Colon | State::Value | State::End, b' ' | b'\t' | b'\r' | b'\n') => self.state,
            (State::Start, byte) => {
                // `{` and the name, which is at most cut in two.
                self.digits.push(byte);
                let (brace, name) = self.digits.split_first().ok_or(NotALog)?;
                if *brace != b'{' || !NAME.starts_with(name) {
                    return Err(NotALog);
                }
                if name.len() < NAME.len() {
                    State::Start
                } else {
                    self.digits.clear();
                    State::Colon
                }
            }
            (State::Colon, b':') => State::Value,
            (State::Value, b'"') | (State::Escape, b'\n') => State::Text,
            (State::Text, b'"') => {
                self.flush_high(text);
                State::End
            }
            (State::Text, b'\\') => State::Escape,
            (State::Escape, b'u') => State::Hex,
            (State::Escape, escaped) => {
                self.flush_high(text);
                text.extend_from_slice(&[unescape(escaped).ok_or(NotALog)?]);
                State::Text
            }
            (State::Hex, digit) => self.hex(digit, text)?,
            (State::End, b'}') => State::End,
            _ => return Err(NotALog),
        };
        Ok(())
    }

    fn hex(&mut self, digit: u8, text: &mut BytesMut) -> Result<State, NotALog> {
        self.digits.push(digit);
        if self.digits.len() < 4 {
            return Ok(State::Hex);
        }
        let unit = std::str::from_utf8(&self.digits).ok().and_then(|digits| u16::from_str_radix(digits, 16).ok());
        self.digits.clear();
        let unit = unit.ok_or(NotALog)?;
        if let Some(high) = self.high.take() {
            let pair = char::decode_utf16([high, unit]).next();
            if let Some(Ok(char)) = pair {
                append(text, char);
                return Ok(State::Text);
            }
            append(text, char::REPLACEMENT_CHARACTER);
        }
        match char::from_u32(u32::from(unit)) {
            Some(char) => append(text, char),
            None if (0xd800..0xdc00).contains(&unit) => self.high = Some(unit),
            None => append(text, char::REPLACEMENT_CHARACTER),
        }
        Ok(State::Text)
    }

    /// Half a character that no other half follows: Python writes bytes that are no text this way.
    fn flush_high(&mut self, text: &mut BytesMut) {
        if self.high.take().is_some() {
            append(text, char::REPLACEMENT_CHARACTER);
        }
    }
}

fn append(text: &mut BytesMut, char: char) {
    text.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
}

fn unescape(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' | b'\\' | b'/' => byte,
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&[u8]]) -> Result<(String, bool), NotALog> {
        let mut decoder = LogDecoder::default();
        let mut text = Vec::new();
        for piece in pieces {
            text.extend_from_slice(&decoder.push(piece)?);
        }
        Ok((String::from_utf8(text).unwrap(), decoder.is_complete()))
    }

    #[test]
    fn a_log_is_the_same_in_whatever_pieces() {
        let text = "plain \"quoted\" back\\slash /\n\ttab\r bell\u{7} ü € 😀 𝄞 end";
        // As Python writes it, and as everybody else does.
        let ascii: String = text.chars().fold(String::new(), |mut out, char| {
            match char {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '/' => out.push_str("\\/"),
                ' '..='~' => out.push(char),
                _ => out.extend(char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
            }
            out
        });
        for body in [
            format!("{{\"logs\": \"{ascii}\"}}"),
            serde_json::json!({"logs": text}).to_string(),
            format!(" {{ \"logs\" : \"{ascii}\" }}\n"),
        ] {
            for size in [1, 2, 3, 7, 1000] {
                let pieces: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
                assert_eq!(decode(&pieces).unwrap(), (text.to_owned(), true), "{body} in pieces of {size}");
            }
        }
    }

    #[test]
    fn halves_of_characters_do_not_stop_the_log() {
        assert_eq!(
            decode(&[br#"{"logs": "a\ud83dz\ude00\ud83d\ud83d\ude00"}"#]).unwrap().0,
            "a\u{fffd}z\u{fffd}\u{fffd}😀"
        );
        assert_eq!(decode(&[br#"{"logs": "\ud83d\n\ud83d"}"#]).unwrap().0, "\u{fffd}\n\u{fffd}");
    }

    #[test]
    fn what_is_no_log_is_told_from_one_that_broke_off() {
        for body in [
            "[]",
            "{}",
            "{\"log\": \"\"}",
            "{\"logs\": null}",
            "{\"logs\": \"\\x\"}",
            "{\"logs\": \"\\u00zz\"}",
            "{\"logs\": \"\"}x",
        ] {
            assert_eq!(decode(&[body.as_bytes()]), Err(NotALog), "{body}");
        }
        for body in ["", "{\"lo", "{\"logs\"", "{\"logs\": \"abc", "{\"logs\": \"abc\\", "{\"logs\": \"abc\\u00"] {
            assert!(!decode(&[body.as_bytes()]).unwrap().1, "{body}");
        }
    }
}

//! What all jobs that move their own data have in common, whatever runs them.

use bridge_core::ids::SubmitToken;

/// The URLs ended before the job started.
pub(crate) const EXPIRED: i32 = 113;
/// No program on the node can move data.
pub(crate) const NO_CLIENT: i32 = 112;
/// An input could not be fetched.
pub(crate) const NO_INPUT: i32 = 114;
/// The script could not be written on the node.
pub(crate) const NO_PLACE: i32 = 115;
/// What S3 takes in one piece.
pub(crate) const LARGEST: u64 = 5 * 1024 * 1024 * 1024;

/// What an exit code that is not the user's means: a word and a sentence.
#[must_use]
pub(crate) fn meaning(code: i32) -> Option<(&'static str, &'static str)> {
    match code {
        EXPIRED => Some(("StageInExpired", "the URLs for its data ended before the job started")),
        NO_CLIENT => Some(("StageInNoClient", "neither curl nor GNU wget is on the node, so no data could be moved")),
        NO_INPUT => Some(("StageInFailed", "an input could not be fetched on the node")),
        NO_PLACE => Some(("StageInNoPlace", "the script could not be written on the node")),
        _ => None,
    }
}

/// Whether files that lie there before it starts may be its own, of an attempt before it.
#[must_use]
pub(crate) fn is_further_attempt(token: &SubmitToken) -> bool {
    token.earlier().next().is_some()
}

/// A SHA-256 in lower-case hex, if this text is one: others may keep something else under the same name.
#[must_use]
pub(crate) fn sha256_in_hex(text: &str) -> Option<String> {
    let is_one = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_meaning() {
        for code in [EXPIRED, NO_CLIENT, NO_INPUT, NO_PLACE] {
            assert!(meaning(code).is_some_and(|(word, _)| word.starts_with("StageIn")), "{code}");
        }
        assert_eq!(meaning(1), None);
    }

    #[test]
    fn only_the_first_attempt_has_none_before_it() {
        let is_further = [1, 2, 10].map(|attempt| is_further_attempt(&SubmitToken::derive("7c1e-9", attempt)));
        assert_eq!(is_further, [false, true, true]);
    }
}

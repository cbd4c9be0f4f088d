//! Patterns of file names, as a shell has them: `*`, `?` and `[…]` within a name, `**` for any number of folders.

/// Whether a name is a pattern.
#[must_use]
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// The folders in front of the first pattern, `""` if there are none. All that can match is below them.
#[must_use]
pub fn fixed_folder(pattern: &str) -> &str {
    let special = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    pattern[..special].rfind('/').map_or("", |slash| &pattern[..slash])
}

/// Whether something in a folder, however deep, could match.
#[must_use]
pub fn may_lead_to(pattern: &str, folder: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let folder: Vec<&str> = folder.split('/').collect();
    if let Some(any) = pattern.iter().position(|part| *part == "**") {
        let heads = any.min(folder.len());
        return folders(&pattern[..heads], &folder[..heads]);
    }
    pattern.len() > folder.len() && folders(&pattern[..folder.len()], &folder)
}

/// Whether a pattern matches a whole path. As in a shell, a leading dot is matched by a dot only.
#[must_use]
pub fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    folders(&pattern, &path)
}

fn folders(pattern: &[&str], path: &[&str]) -> bool {
    // Which heads of the path the patterns so far can match: linear in both lengths, whatever stars there are.
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        if *part == "**" {
            let mut open = false;
            for (at, seen) in reached.iter().enumerate() {
                open |= *seen;
                next[at] = open;
                open &= path.get(at).is_some_and(|name| !name.starts_with('.'));
            }
        } else {
            for (at, name) in path.iter().enumerate() {
                next[at + 1] = reached[at] && name_matches(part, name);
            }
        }
        reached = next;
    }
    reached[path.len()]
}

enum Piece {
    Star,
    Any,
    One(char),
    Set { negated: bool, ranges: Vec<(char, char)> },
}

fn name_matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let pieces = pieces(pattern);
    let letters: Vec<char> = name.chars().collect();
    let mut reached = vec![false; letters.len() + 1];
    reached[0] = true;
    for piece in &pieces {
        let mut next = vec![false; letters.len() + 1];
        if let Piece::Star = piece {
            let mut open = false;
            for (at, seen) in reached.iter().enumerate() {
                open |= *seen;
                next[at] = open;
            }
        } else {
            for (at, letter) in letters.iter().enumerate() {
                next[at + 1] = reached[at] && takes(piece, *letter);
            }
        }
        reached = next;
    }
    reached[letters.len()]
}

fn takes(piece: &Piece, letter: char) -> bool {
    match piece {
        Piece::Star | Piece::Any => true,
        Piece::One(own) => *own == letter,
        Piece::Set { negated, ranges } => {
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&letter)) != *negated
        }
    }
}

fn pieces(pattern: &str) -> Vec<Piece> {
    let letters: Vec<char> = pattern.chars().collect();
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(letter) = letters.get(at) {
        at += 1;
        pieces.push(match letter {
            '*' => Piece::Star,
            '?' => Piece::Any,
            '[' => match set(&letters[at..]) {
                Some((piece, length)) => {
                    at += length;
                    piece
                }
                None => Piece::One('['),
            },
            letter => Piece::One(*letter),
        });
    }
    pieces
}

/// A set after its `[`, and how long it is; `None` if it is not closed.
fn set(letters: &[char]) -> Option<(Piece, usize)> {
    let negated = matches!(letters.first(), Some('!' | '^'));
    let start = usize::from(negated);
    // A bracket right at the start is a letter of the set.
    let end = letters.iter().skip(start + 1).position(|letter| *letter == ']')? + start + 1;
    let inner = letters.get(start..end)?;
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(first) = inner.get(at) {
        if let (Some('-'), Some(last)) = (inner.get(at + 1), inner.get(at + 2)) {
            ranges.push((*first, *last));
            at += 3;
        } else {
            ranges.push((*first, *first));
            at += 1;
        }
    }
    Some((Piece::Set { negated, ranges }, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let table = [
            ("*.out", "a.out", true),
            ("*.out", "a.out.gz", false),
            ("*.out", "d/a.out", false),
            ("*", ".hidden", false),
            (".*", ".hidden", true),
            ("d/*", "d/ä b", true),
            ("d/*", "d/e/f", false),
            ("d/**/f", "d/f", true),
            ("d/**/f", "d/x/y/f", true),
            ("**", "a/b", true),
            ("**/*.h5", "a/b/c.h5", true),
            ("**/x", "a/.b/x", false),
            ("a?c", "abc", true),
            ("a?c", "aäc", true),
            ("a?c", "ac", false),
            ("[a-c]1", "b1", true),
            ("[!a-c]1", "b1", false),
            ("[]x]", "]", true),
            ("[x", "[x", true),
            ("a*b*c", "a__b__c", true),
            ("a*b*c", "a__c", false),
            ("plain", "plain", true),
        ];
        for (pattern, path, expected) in table {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn only_folders_that_can_lead_to_a_match_do() {
        let table = [
            ("*.out", "d", false),
            ("d/*", "d", true),
            ("d/*", "d/e", false),
            ("d/*/f", "d/e", true),
            ("d/*/f", "e/e", false),
            ("**/f", "a/b", true),
            ("d/**", "d", true),
            ("d/**", "d/e/f", true),
            ("d/**", "e/d", false),
        ];
        for (pattern, folder, expected) in table {
            assert_eq!(may_lead_to(pattern, folder), expected, "{pattern} {folder}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!matches(&"*a".repeat(200), &"a".repeat(5000)[..4999].replace("aaaaaaaaaaaaaaaa", "b")));
    }

    #[test]
    fn the_folder_to_look_in_is_what_comes_before_the_pattern() {
        let table = [("*.out", ""), ("d/*.out", "d"), ("d/e/f?", "d/e"), ("d*/x", ""), ("d/plain", "d")];
        for (pattern, folder) in table {
            assert_eq!(fixed_folder(pattern), folder, "{pattern}");
        }
    }
}

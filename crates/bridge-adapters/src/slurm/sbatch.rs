//! `#SBATCH` lines. slurmrestd does not read them, so they are read here.

/// One directive, by the long name of its option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directive {
    /// The option's long name, without dashes.
    pub(super) name: String,
    /// Its value; `None` for a switch.
    pub(super) value: Option<String>,
    /// The line it is on, from 1.
    pub(super) line: usize,
}

/// A line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(super) struct DirectiveError {
    /// The line, from 1.
    pub(super) line: usize,
    /// What is wrong with it.
    pub(super) problem: String,
}

/// Short options, their long names, and whether they take a value.
const SHORT: [(char, &str, bool); 34] = [
    ('A', "account", true),
    ('a', "array", true),
    ('b', "begin", true),
    ('C', "constraint", true),
    ('c', "cpus-per-task", true),
    ('D', "chdir", true),
    ('d', "dependency", true),
    ('e', "error", true),
    ('F', "nodefile", true),
    ('G', "gpus", true),
    ('H', "hold", false),
    ('h', "help", false),
    ('I', "immediate", false),
    ('i', "input", true),
    ('J', "job-name", true),
    ('k', "no-kill", false),
    ('L', "licenses", true),
    ('M', "clusters", true),
    ('m', "distribution", true),
    ('N', "nodes", true),
    ('n', "ntasks", true),
    ('O', "overcommit", false),
    ('o', "output", true),
    ('p', "partition", true),
    ('Q', "quiet", false),
    ('q', "qos", true),
    ('S', "core-spec", true),
    ('s', "oversubscribe", false),
    ('t', "time", true),
    ('v', "verbose", false),
    ('W', "wait", false),
    ('w', "nodelist", true),
    ('x', "exclude", true),
    ('B', "extra-node-info", true),
];

/// Long options that are complete without a value.
const SWITCHES: [&str; 20] = [
    "contiguous",
    "exclusive",
    "get-user-env",
    "help",
    "hold",
    "ignore-pbs",
    "no-kill",
    "no-requeue",
    "overcommit",
    "oversubscribe",
    "parsable",
    "quiet",
    "reboot",
    "requeue",
    "spread-job",
    "test-only",
    "use-min-nodes",
    "verbose",
    "wait",
    "stepmgr",
];

/// The directives of a script, in order, up to its first command.
pub(super) fn directives(script: &str) -> Result<Vec<Directive>, DirectiveError> {
    let mut found = Vec::new();
    for (index, line) in script.lines().enumerate() {
        let number = index + 1;
        if let Some(options) = line.strip_prefix("#SBATCH").filter(|rest| rest.starts_with([' ', '\t'])) {
            read_line(options, number, &mut found)?;
        } else if !line.trim_start().is_empty() && !line.trim_start().starts_with('#') {
            break;
        }
    }
    Ok(found)
}

fn read_line(options: &str, line: usize, found: &mut Vec<Directive>) -> Result<(), DirectiveError> {
    let problem = |problem: String| DirectiveError { line, problem };
    let mut words = words(options).map_err(|text| problem(text.to_owned()))?.into_iter();
    while let Some(word) = words.next() {
        let mut push = |name: &str, value: Option<String>| {
            found.push(Directive { name: name.to_owned(), value, line });
        };
        if let Some(long) = word.strip_prefix("--") {
            match long.split_once('=') {
                Some((name, value)) => push(name, Some(value.to_owned())),
                None if SWITCHES.contains(&long) => push(long, None),
                None => {
                    let value = words.next().ok_or_else(|| problem(format!("option --{long} has no value")))?;
                    push(long, Some(value));
                }
            }
        } else if let Some(short) = word.strip_prefix('-') {
            let mut letters = short.chars();
            while let Some(letter) = letters.next() {
                let (_, name, takes_value) = SHORT
                    .iter()
                    .find(|(own, _, _)| *own == letter)
                    .ok_or_else(|| problem(format!("option -{letter} is not known")))?;
                if !takes_value {
                    push(name, None);
                    continue;
                }
                let rest = letters.as_str().trim_start_matches('=').to_owned();
                let value = if rest.is_empty() {
                    words.next().ok_or_else(|| problem(format!("option -{letter} has no value")))?
                } else {
                    rest
                };
                push(name, Some(value));
                break;
            }
        } else {
            return Err(problem(format!("`{word}` is not an option; write --option=value")));
        }
    }
    Ok(())
}

/// Splits as a shell would: quotes and backslashes count, `#` starts a remark.
fn words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                word.get_or_insert_default().push(letters.next().ok_or("it ends in a backslash")?);
            }
            (None, '#') if word.is_none() => break,
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(script: &str) -> Vec<(String, Option<String>)> {
        directives(script).unwrap().into_iter().map(|directive| (directive.name, directive.value)).collect()
    }

    fn pair(name: &str, value: &str) -> (String, Option<String>) {
        (name.to_owned(), Some(value.to_owned()))
    }

    #[test]
    fn every_way_to_write_a_directive_is_read() {
        let script = "#!/bin/bash\n\
            #SBATCH --job-name=sim --time 10   # a remark\n\
            #SBATCH -N4 -n 8\n\
            #SBATCH\t-J \"two words\" --comment='it''s \"fine\"'\n\
            #SBATCH --exclusive\n\
            #SBATCH -p=debug -OH\n\
            # an ordinary remark\n\
            \n\
            #SBATCH --mem=4G\n";
        let switch = |name: &str| (name.to_owned(), None);
        assert_eq!(
            read(script),
            [
                pair("job-name", "sim"),
                pair("time", "10"),
                pair("nodes", "4"),
                pair("ntasks", "8"),
                pair("job-name", "two words"),
                pair("comment", "its \"fine\""),
                switch("exclusive"),
                pair("partition", "debug"),
                switch("overcommit"),
                switch("hold"),
                pair("mem", "4G"),
            ]
        );
    }

    #[test]
    fn nothing_after_the_first_command_and_nothing_that_only_looks_alike_is_read() {
        assert_eq!(read("#!/bin/sh\n#SBATCH --mem=1\necho\n#SBATCH --mem=2\n"), [pair("mem", "1")]);
        assert_eq!(read("#!/bin/sh\n##SBATCH --mem=1\n #SBATCH --mem=2\n#SBATCHED --mem=3\n# SBATCH --mem=4\n"), []);
        assert_eq!(read(""), []);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        let table = [
            ("#!/bin/sh\n#SBATCH -Z\n", "line 2: option -Z is not known"),
            ("#!/bin/sh\n\n#SBATCH --mem\n", "line 3: option --mem has no value"),
            ("#!/bin/sh\n#SBATCH --comment=\"open\n", "line 2: a quote is not closed"),
            ("#!/bin/sh\n#SBATCH hetjob\n", "line 2: `hetjob` is not an option; write --option=value"),
        ];
        for (script, message) in table {
            assert_eq!(directives(script).unwrap_err().to_string(), message);
        }
    }
}

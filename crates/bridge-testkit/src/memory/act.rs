//! What a job does, read from its script.

/// What a job does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    Succeeds,
    Fails(i32),
    Runs,
    Queues,
    Prints(u32),
    Complains(Box<str>),
    Says(Box<str>),
    Copies(Box<str>),
    Writes(Box<(String, String)>),
}

impl Act {
    /// `None` for a job that asks to be refused.
    pub(super) fn parse(script: &str) -> Option<Self> {
        let script = script.trim();
        let (word, rest) = script.split_once(' ').unwrap_or((script, ""));
        Some(match word {
            "refuse" => return None,
            "fail" => Self::Fails(rest.parse().unwrap_or(1)),
            "run" => Self::Runs,
            "queue" => Self::Queues,
            "print" => Self::Prints(rest.parse().unwrap_or(1)),
            "complain" => Self::Complains(rest.into()),
            "say" => Self::Says(rest.into()),
            "copy" => Self::Copies(rest.into()),
            "write" => {
                let (name, text) = rest.split_once('=').unwrap_or((rest, ""));
                Self::Writes(Box::new((name.to_owned(), text.to_owned())))
            }
            _ => Self::Succeeds,
        })
    }

    /// Whether it goes on until it is cancelled.
    pub(super) fn is_endless(&self) -> bool {
        matches!(self, Self::Runs | Self::Queues | Self::Says(_))
    }

    pub(super) fn exit_code(&self) -> i32 {
        match self {
            Self::Fails(code) => *code,
            _ => 0,
        }
    }
}

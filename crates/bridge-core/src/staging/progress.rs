//! How far a transfer has come.

use std::fmt;

/// How far a stage has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes moved.
    pub bytes: u64,
    /// All bytes, where they are known.
    pub total: Option<u64>,
    /// Files done.
    pub files: u64,
    /// All files.
    pub of: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} files, {}", self.files, self.of, amount(self.bytes))?;
        match self.total {
            Some(total) if total > 0 => {
                let percent = u128::from(self.bytes.min(total)) * 100 / u128::from(total);
                write!(f, " of {} ({percent} %)", amount(total))
            }
            _ => Ok(()),
        }
    }
}

/// Bytes as people read them.
fn amount(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_well() {
        let progress = |bytes, total| Progress { bytes, total, files: 1, of: 3 }.to_string();
        assert_eq!(progress(0, None), "1 of 3 files, 0 B");
        assert_eq!(progress(1536, Some(3072)), "1 of 3 files, 1.5 KiB of 3.0 KiB (50 %)");
        assert_eq!(progress(5 << 30, Some(5 << 30)), "1 of 3 files, 5.0 GiB of 5.0 GiB (100 %)");
        assert_eq!(progress(7, Some(0)), "1 of 3 files, 7 B");
    }
}

//! What a command shows: the jobs' output on standard output, everything else on standard error, or JSON lines.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use bridge_core::clock::{Clock as _, SystemClock};
use bridge_core::manager::LogStream;
use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;

use crate::cli::Format;
use crate::view::JobView;

/// Longer lines are shown in pieces.
const LONGEST_LINE: usize = 64 * 1024;

/// The width that a progress line fits into on every terminal.
const PROGRESS_WIDTH: usize = 79;

/// Something to show.
#[derive(Debug)]
pub enum Shown {
    /// Output of a job.
    Output {
        /// Its name, and its namespace if it has one.
        name: (String, Option<String>),
        /// Standard output or standard error.
        stream: LogStream,
        /// The bytes.
        data: Bytes,
    },
    /// A job's status may have changed.
    Status(Box<JobView>),
    /// A job ended.
    End(Box<JobView>),
    /// A remark.
    Note(String),
    /// Time has passed.
    Tick,
}

/// How things are shown.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// For people or for programs.
    pub format: Format,
    /// Only output and errors.
    pub quiet: bool,
    /// Lines of output say whose they are.
    pub several: bool,
}

/// Shows things in a thread of its own, so that a slow reader of our output holds up nothing else.
#[derive(Debug)]
pub struct Screen {
    sender: mpsc::Sender<Shown>,
    thread: std::thread::JoinHandle<()>,
}

impl Screen {
    /// A screen on this process's standard output and standard error.
    #[must_use]
    pub fn open(style: Style) -> Self {
        let (sender, mut receiver) = mpsc::channel(64);
        let thread = std::thread::spawn(move || {
            let live = style.format == Format::Text && !style.quiet && io::stderr().is_terminal();
            let mut printer = Printer::new(style, live, io::stdout(), io::stderr());
            while let Some(shown) = receiver.blocking_recv() {
                printer.show(shown);
            }
            printer.finish();
        });
        Self { sender, thread }
    }

    /// Where to send things.
    #[must_use]
    pub fn sender(&self) -> mpsc::Sender<Shown> {
        self.sender.clone()
    }

    /// Waits until everything is written. All other senders must be gone.
    pub async fn close(self) {
        drop(self.sender);
        let thread = self.thread;
        tokio::task::spawn_blocking(move || thread.join().ok()).await.ok();
    }
}

/// Writes what is shown.
struct Printer<O, E> {
    style: Style,
    live: bool,
    out: O,
    err: E,
    clock: SystemClock,
    begun: Instant,
    jobs: BTreeMap<String, JobView>,
    said: BTreeMap<String, String>,
    partial: BTreeMap<(String, Option<String>, LogStream), Vec<u8>>,
    progress: bool,
    mid_line: bool,
}

impl<O: Write, E: Write> Printer<O, E> {
    fn new(style: Style, live: bool, out: O, err: E) -> Self {
        Self {
            style,
            live,
            out,
            err,
            clock: SystemClock::new(),
            begun: Instant::now(),
            jobs: BTreeMap::new(),
            said: BTreeMap::new(),
            partial: BTreeMap::new(),
            progress: false,
            mid_line: false,
        }
    }

    /// Nobody may be reading any more; the job goes on all the same, so failed writes are not looked at.
    fn show(&mut self, shown: Shown) {
        let _ = match self.style.format {
            Format::Text => self.show_text(shown),
            Format::Json => self.show_json(shown),
        };
    }

    fn finish(&mut self) {
        self.flush_partial(|_| true);
        let _ = self.clear();
        let _ = self.out.flush();
        let _ = self.err.flush();
    }

    fn show_text(&mut self, shown: Shown) -> io::Result<()> {
        match shown {
            Shown::Output { name, stream, data } if self.style.several => {
                for line in self.lines(&name, stream, &data) {
                    self.print_line(&name, stream, &line)?;
                }
                self.draw()
            }
            Shown::Output { stream, data, .. } => {
                self.clear()?;
                match stream {
                    LogStream::Stdout => {
                        self.out.write_all(&data)?;
                        self.out.flush()?;
                    }
                    LogStream::Stderr => self.err.write_all(&data)?,
                }
                self.mid_line = data.last().is_some_and(|byte| *byte != b'\n');
                self.draw()
            }
            Shown::Status(view) => {
                let (title, words) = (view.title(), format!("{}: {}", view.status, view.message));
                self.jobs.insert(title.clone(), *view);
                let news = self.said.insert(title.clone(), words.clone()).as_ref() != Some(&words);
                if news && !self.live && !self.style.quiet {
                    writeln!(self.err, "{title}: {words}")?;
                }
                self.draw()
            }
            Shown::End(view) => {
                let title = view.title();
                self.flush_partial(|(name, namespace, _)| *name == view.name && *namespace == view.namespace);
                self.clear()?;
                if self.mid_line && self.live {
                    writeln!(self.err)?;
                    self.mid_line = false;
                }
                if !self.style.quiet {
                    let id = view.job_id.as_ref().map(|id| format!("; job {id}")).unwrap_or_default();
                    writeln!(self.err, "{title}: {}: {}{id}", view.status, view.message)?;
                }
                self.jobs.insert(title, *view);
                self.draw()
            }
            Shown::Note(text) => {
                self.clear()?;
                if !self.style.quiet {
                    writeln!(self.err, "{text}")?;
                }
                self.draw()
            }
            Shown::Tick => self.draw(),
        }
    }

    fn show_json(&mut self, shown: Shown) -> io::Result<()> {
        let time = self.clock.now().wall;
        match shown {
            Shown::Output { name, stream, data } => {
                for line in self.lines(&name, stream, &data) {
                    self.print_line(&name, stream, &line)?;
                }
                Ok(())
            }
            Shown::Status(view) => {
                let words = format!("{} {} {} {}", view.status, view.reason, view.message, view.attempt);
                if self.said.insert(view.title(), words.clone()).as_ref() == Some(&words) {
                    return Ok(());
                }
                self.print_json(&json!({ "event": "status", "time": time, "job": view }))
            }
            Shown::End(view) => {
                self.flush_partial(|(name, namespace, _)| *name == view.name && *namespace == view.namespace);
                self.print_json(&json!({ "event": "end", "time": time, "job": view }))
            }
            Shown::Note(text) => self.print_json(&json!({ "event": "note", "time": time, "message": text })),
            Shown::Tick => Ok(()),
        }
    }

    fn print_json(&mut self, value: &serde_json::Value) -> io::Result<()> {
        writeln!(self.out, "{value}")?;
        self.out.flush()
    }

    fn print_line(&mut self, name: &(String, Option<String>), stream: LogStream, line: &[u8]) -> io::Result<()> {
        if self.style.format == Format::Json {
            let stream = match stream {
                LogStream::Stdout => "stdout",
                LogStream::Stderr => "stderr",
            };
            let text = String::from_utf8_lossy(line);
            let time = self.clock.now().wall;
            return self.print_json(&json!({
                "event": "output", "time": time, "name": name.0, "namespace": name.1, "stream": stream, "text": text,
            }));
        }
        self.clear()?;
        let title = match &name.1 {
            Some(namespace) => format!("{namespace}/{}", name.0),
            None => name.0.clone(),
        };
        let into: &mut dyn Write = match stream {
            LogStream::Stdout => &mut self.out,
            LogStream::Stderr => &mut self.err,
        };
        write!(into, "[{title}] ")?;
        into.write_all(line)?;
        into.write_all(b"\n")?;
        into.flush()
    }

    /// The whole lines, without their ends; the rest is kept for later.
    fn lines(&mut self, name: &(String, Option<String>), stream: LogStream, data: &[u8]) -> Vec<Vec<u8>> {
        let kept = self.partial.entry((name.0.clone(), name.1.clone(), stream)).or_default();
        kept.extend_from_slice(data);
        let mut lines = Vec::new();
        while let Some(end) = kept.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = kept.drain(..=end).collect();
            line.pop();
            lines.push(line);
        }
        if kept.len() > LONGEST_LINE {
            lines.push(std::mem::take(kept));
        }
        lines
    }

    fn flush_partial(&mut self, of: impl Fn(&(String, Option<String>, LogStream)) -> bool) {
        let due: Vec<_> = self.partial.keys().filter(|key| of(key)).cloned().collect();
        for key in due {
            if let Some(line) = self.partial.remove(&key).filter(|line| !line.is_empty()) {
                let (name, namespace, stream) = key;
                let _ = self.print_line(&(name, namespace), stream, &line);
            }
        }
    }

    fn clear(&mut self) -> io::Result<()> {
        if self.progress {
            self.progress = false;
            write!(self.err, "\r\x1b[K")?;
        }
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        if !self.live || self.mid_line || self.jobs.values().all(|job| job.ended) {
            return Ok(());
        }
        let line = progress(&self.jobs, self.begun.elapsed());
        write!(self.err, "\r\x1b[K{line}")?;
        self.progress = true;
        self.err.flush()
    }
}

/// One line for all jobs.
fn progress(jobs: &BTreeMap<String, JobView>, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    let time = format!("{}:{:02}", seconds / 60, seconds % 60);
    let line = if let Some((title, view)) = jobs.first_key_value().filter(|_| jobs.len() == 1) {
        format!("{title}  {}  {time}  {}", view.status, view.message)
    } else {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for view in jobs.values() {
            *counts.entry(view.status).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
        format!("{} jobs: {}  {time}", jobs.len(), counts.join(", "))
    };
    let line = line.replace(char::is_control, " ");
    if line.chars().count() > PROGRESS_WIDTH {
        line.chars().take(PROGRESS_WIDTH - 1).chain(['…']).collect()
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(name: &str, status: &'static str, ended: bool) -> Box<JobView> {
        Box::new(JobView {
            name: name.to_owned(),
            namespace: None,
            run: "r".to_owned(),
            manager: "local",
            url: "local:".to_owned(),
            status,
            ended,
            reason: String::new(),
            message: "words".to_owned(),
            job_id: Some("7".to_owned()),
            attempt: 1,
            submitted: None,
            started: None,
            completed: None,
            exit_code: None,
            process_exit_code: 0,
        })
    }

    fn output(name: &str, text: &str) -> Shown {
        Shown::Output { name: (name.to_owned(), None), stream: LogStream::Stdout, data: Bytes::from(text.to_owned()) }
    }

    fn shown(style: Style, live: bool, things: Vec<Shown>) -> (String, String) {
        let mut printer = Printer::new(style, live, Vec::new(), Vec::new());
        for thing in things {
            printer.show(thing);
        }
        printer.finish();
        (String::from_utf8(printer.out).unwrap(), String::from_utf8(printer.err).unwrap())
    }

    const PLAIN: Style = Style { format: Format::Text, quiet: false, several: false };

    #[test]
    fn output_goes_out_as_it_is_and_words_are_said_once() {
        let status = || Shown::Status(view("a", "RUNNING", false));
        let (out, err) =
            shown(PLAIN, false, vec![status(), output("a", "x\ny"), status(), Shown::End(view("a", "DONE", true))]);
        assert_eq!(out, "x\ny");
        assert_eq!(err, "a: RUNNING: words\na: DONE: words; job 7\n");
    }

    #[test]
    fn several_jobs_sign_their_lines() {
        let style = Style { several: true, ..PLAIN };
        let things = vec![
            output("a", "one\ntw"),
            output("b", "B\n"),
            output("a", "o\nthree"),
            Shown::End(view("a", "DONE", true)),
        ];
        let (out, _) = shown(style, false, things);
        assert_eq!(out, "[a] one\n[b] B\n[a] two\n[a] three\n");
    }

    #[test]
    fn quiet_shows_only_output() {
        let style = Style { quiet: true, ..PLAIN };
        let (out, err) = shown(
            style,
            false,
            vec![
                Shown::Status(view("a", "RUNNING", false)),
                output("a", "x"),
                Shown::Note("n".to_owned()),
                Shown::End(view("a", "DONE", true)),
            ],
        );
        assert_eq!((out.as_str(), err.as_str()), ("x", ""));
    }

    #[test]
    fn a_terminal_gets_one_line_that_makes_way() {
        let (out, err) = shown(
            PLAIN,
            true,
            vec![Shown::Status(view("a", "PENDING", false)), output("a", "x\n"), Shown::End(view("a", "DONE", true))],
        );
        assert_eq!(out, "x\n");
        assert_eq!(
            err,
            "\r\x1b[Ka  PENDING  0:00  words\r\x1b[K\r\x1b[Ka  PENDING  0:00  words\r\x1b[Ka: DONE: words; job 7\n"
        );
    }

    #[test]
    fn programs_get_one_object_a_line() {
        let style = Style { format: Format::Json, ..PLAIN };
        let (out, err) = shown(
            style,
            false,
            vec![Shown::Status(view("a", "RUNNING", false)), output("a", "x\ny"), Shown::End(view("a", "DONE", true))],
        );
        assert_eq!(err, "");
        let events: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["status", "output", "output", "end"]);
        assert_eq!(events[2]["text"], "y");
        assert_eq!(events[3]["job"]["processExitCode"], 0);
    }

    #[test]
    fn progress_of_many_jobs_counts_them() {
        let jobs = [("a", "RUNNING"), ("b", "RUNNING"), ("c", "DONE")]
            .map(|(name, status)| (name.to_owned(), *view(name, status, false)))
            .into();
        assert_eq!(progress(&jobs, Duration::from_secs(65)), "3 jobs: 1 DONE, 2 RUNNING  1:05");
    }
}

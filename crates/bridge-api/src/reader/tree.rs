//! YAML events to a tree in which every key and value knows its place.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_saphyr::granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, Tag, options};

use super::Mark;
use super::scalar::{self, Scalar};

/// More nodes than any sensible file has, aliases expanded; beyond it a file is an attack or a mistake.
const MAX_NODES: usize = 50_000;
/// Bytes of text with aliases expanded, for the same reason.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Levels of nesting; a `BridgeJob` has six.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Mark,
    pub(super) value: Tree,
}

#[derive(Clone, Debug)]
pub(super) enum Tree {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: Mark,
    pub(super) value: Node,
    /// Came in through `<<`, so that a key of the map itself wins.
    merged: bool,
}

impl Node {
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Tree::Map(entries) => entries,
            _ => &[],
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Tree::Scalar(Scalar::Text { text, .. }) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, Tree::Scalar(Scalar::Null))
    }

    /// Nodes, bytes of text and levels of this tree.
    fn measure(&self) -> (usize, usize, usize) {
        let (mut nodes, mut bytes, mut depth) = (1, 0, 0);
        let mut add = |child: &Self| {
            let (n, b, d) = child.measure();
            nodes += n;
            bytes += b;
            depth = depth.max(d);
        };
        match &self.value {
            Tree::Scalar(Scalar::Text { text, .. }) => bytes = text.len(),
            Tree::Scalar(_) => {}
            Tree::List(items) => items.iter().for_each(&mut add),
            Tree::Map(entries) => {
                for entry in entries {
                    add(&entry.value);
                }
                bytes += entries.iter().map(|entry| entry.key.len()).sum::<usize>();
            }
        }
        (nodes, bytes, depth + 1)
    }
}

/// Something wrong with the text itself, before any field has a meaning.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: Mark,
    pub(super) path: String,
    pub(super) message: String,
}

/// The documents of a text, as far as it can be read, and what is wrong with it.
pub(super) fn parse(text: &str) -> (Vec<Node>, Vec<Fault>) {
    let mut builder = Builder { source: text.lines().collect(), ..Builder::default() };
    let options = options! { emit_comments: false };
    for event in Parser::new_from_str_with_options(text, options) {
        let result = match event {
            Ok((event, span)) => builder.take(event, &span),
            Err(error) => Err(syntax(&builder.source, &error)),
        };
        if let Err(fault) = result {
            builder.faults.push(fault);
            break;
        }
    }
    (builder.documents, builder.faults)
}

#[derive(Default)]
struct Builder<'a> {
    source: Vec<&'a str>,
    documents: Vec<Node>,
    faults: Vec<Fault>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    bytes: usize,
}

/// A collection that is being read.
struct Open {
    at: Mark,
    anchor: usize,
    items: Vec<Node>,
    /// `Some` for a map.
    map: Option<OpenMap>,
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<Entry>,
    /// The key that waits for its value.
    key: Option<Key>,
}

struct Key {
    name: String,
    at: Mark,
    /// Written without quotes; only then is `<<` a merge.
    plain: bool,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Fault> {
        let at = Mark { line: span.start.line(), column: span.start.col() + 1 };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let node = self.scalar(at, text.into_owned(), style, tag.as_deref());
                self.count(at, 1, node.measure().1)?;
                self.close(node, anchor, style == ScalarStyle::Plain)
            }
            Event::SequenceStart(_, anchor, tag) => self.open(at, anchor, tag.as_deref(), None),
            Event::MappingStart(_, anchor, tag) => self.open(at, anchor, tag.as_deref(), Some(OpenMap::default())),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let value = match open.map {
                    Some(map) => Tree::Map(self.finish(map.entries)),
                    None => Tree::List(open.items),
                };
                self.close(Node { at: open.at, value }, open.anchor, false)
            }
            Event::Alias(id) => {
                let Some(mut node) = self.anchors.get(&id).cloned() else {
                    return Err(self.fault(at, "an alias inside of its own anchor; write the value out"));
                };
                let (nodes, bytes, depth) = node.measure();
                self.count(at, nodes, bytes)?;
                self.deep(at, depth)?;
                node.at = at;
                self.close(node, 0, false)
            }
            Event::DocumentEnd => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn scalar(&mut self, at: Mark, text: String, style: ScalarStyle, tag: Option<&Tag>) -> Node {
        let tagged_text = tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema()) {
            let message = format!("the YAML tag {} has no meaning here; remove it", tag.original());
            self.faults.push(self.fault(at, &message));
        }
        let value = if style == ScalarStyle::Plain && !tagged_text {
            scalar::resolve(&text).unwrap_or_else(|message| {
                self.faults.push(self.fault(at, &message));
                Scalar::Null
            })
        } else {
            let block = (style == ScalarStyle::Literal).then_some(at);
            Scalar::Text { text, plain: false, block }
        };
        Node { at, value: Tree::Scalar(value) }
    }

    fn open(&mut self, at: Mark, anchor: usize, tag: Option<&Tag>, map: Option<OpenMap>) -> Result<(), Fault> {
        self.count(at, 1, 0)?;
        self.deep(at, 1)?;
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema()) {
            let message = format!("the YAML tag {} has no meaning here; remove it", tag.original());
            self.faults.push(self.fault(at, &message));
        }
        self.open.push(Open { at, anchor, items: Vec::new(), map });
        Ok(())
    }

    /// Puts a finished node where it belongs: key, value, item or document.
    fn close(&mut self, node: Node, anchor: usize, plain: bool) -> Result<(), Fault> {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match &mut open.map {
            None => open.items.push(node),
            Some(map) => match map.key.take() {
                Some(key) if key.plain && key.name == "<<" => merge(&mut map.entries, key.at, node),
                Some(key) => map.entries.push(Entry { key: key.name, key_at: key.at, value: node, merged: false }),
                None => {
                    let Tree::Scalar(scalar) = node.value else {
                        let message = "a list or map is used as a key; write a word before the colon";
                        return Err(self.fault(node.at, message));
                    };
                    map.key = Some(Key { name: scalar.into_key(), at: node.at, plain });
                }
            },
        }
        Ok(())
    }

    /// Own keys win over merged ones; the same key twice is an error, because either may be meant.
    fn finish(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
        let mut seen: BTreeMap<String, (usize, Mark, bool)> = BTreeMap::new();
        for entry in entries {
            let merged = entry.merged;
            match seen.get(&entry.key) {
                None => {
                    seen.insert(entry.key.clone(), (kept.len(), entry.key_at, merged));
                    kept.push(entry);
                }
                Some(_) if merged => {}
                Some((index, _, true)) => {
                    let index = *index;
                    seen.insert(entry.key.clone(), (index, entry.key_at, false));
                    if let Some(slot) = kept.get_mut(index) {
                        *slot = entry;
                    }
                }
                Some((_, first, false)) => {
                    let message = format!("is written twice (first on line {}); keep one of them", first.line);
                    let mut path = self.path();
                    push(&mut path, &entry.key);
                    self.faults.push(Fault { at: entry.key_at, path, message });
                }
            }
        }
        kept
    }

    fn count(&mut self, at: Mark, nodes: usize, bytes: usize) -> Result<(), Fault> {
        self.nodes += nodes;
        self.bytes += bytes;
        if self.nodes > MAX_NODES || self.bytes > MAX_BYTES {
            return Err(
                self.fault(at, "the file grows beyond all limits when its anchors are expanded; write it with fewer")
            );
        }
        Ok(())
    }

    fn deep(&self, at: Mark, more: usize) -> Result<(), Fault> {
        if self.open.len() + more > MAX_DEPTH {
            let message = "nested deeper than 64 levels; no field of a BridgeJob is".to_owned();
            return Err(Fault { at, path: String::new(), message });
        }
        Ok(())
    }

    fn fault(&self, at: Mark, message: &str) -> Fault {
        Fault { at, path: self.path(), message: message.to_owned() }
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.map {
                Some(OpenMap { key: Some(key), .. }) => push(&mut path, &key.name),
                Some(_) => {}
                None => {
                    let _ = write!(path, "[{}]", open.items.len());
                }
            }
        }
        path
    }
}

fn merge(entries: &mut Vec<Entry>, at: Mark, node: Node) {
    match node.value {
        Tree::Map(merged) => entries.extend(merged.into_iter().map(|mut entry| {
            // People look for a merged field where it is merged.
            entry.value.at = at;
            entry.key_at = at;
            entry.merged = true;
            entry
        })),
        Tree::List(items) => items.into_iter().for_each(|item| merge(entries, at, item)),
        Tree::Scalar(_) => entries.push(Entry { key: "<<".to_owned(), key_at: at, value: node, merged: false }),
    }
}

pub(super) fn push(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

fn syntax(source: &[&str], error: &ScanError) -> Fault {
    let marker = error.marker();
    let at = Mark { line: marker.line().max(1), column: marker.col() + 1 };
    // The parser notices a tab late and in other words.
    let tab = source.iter().enumerate().skip(at.line.saturating_sub(2)).take(3).find_map(|(index, line)| {
        let blank = &line[..line.len() - line.trim_start().len()];
        blank.find('\t').map(|column| Mark { line: index + 1, column: column + 1 })
    });
    if let Some(at) = tab {
        let message = "a tab is used for indentation; write spaces".to_owned();
        return Fault { at, path: String::new(), message };
    }
    let hint = match error.kind() {
        ErrorKind::MappingValueNotAllowed => "; check the indentation, and put text that contains \": \" in quotes",
        ErrorKind::UnknownAnchor | ErrorKind::MissingAnchorOrAliasName => "; text that begins with * or & needs quotes",
        ErrorKind::ExpectedBlockMappingKey | ErrorKind::ExpectedBlockSequenceEntry => "; check the indentation",
        ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => "; close the quote",
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::ExpectedFlowSequenceSeparator => "; close every { and [ that is opened",
        _ => "",
    };
    Fault { at, path: String::new(), message: format!("not valid YAML: {}{hint}", error.kind()) }
}

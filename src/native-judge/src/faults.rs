//! Reasons against a record: collected, with paths and details as `lakeproof.judge.exact` writes them.

use crate::tree::{unescape, Kind, Node};
use std::borrow::Cow;
use std::fmt::Write;

/// Characters of a value that a detail shows.
const MAX_SHOWN: usize = 80;
/// Reasons of one code that are listed. A record with more is left to the Python judge.
const MAX_FAULTS: u32 = 100;
/// Bytes of the paths of values that drifted. A record with more is left to the Python judge.
const MAX_DRIFT: usize = 128 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    NotAnObject,
    UnknownField,
    MissingField,
    NullField,
    WrongType,
    WrongFormat,
    OutOfRange,
    NotAllowed,
    WrongLength,
    PatternMismatch,
}

const REASONS: usize = 10;

impl Reason {
    pub fn code(self) -> &'static str {
        match self {
            Reason::NotAnObject => "not_an_object",
            Reason::UnknownField => "unknown_field",
            Reason::MissingField => "missing_field",
            Reason::NullField => "null_field",
            Reason::WrongType => "wrong_type",
            Reason::WrongFormat => "wrong_format",
            Reason::OutOfRange => "out_of_range",
            Reason::NotAllowed => "not_allowed",
            Reason::WrongLength => "wrong_length",
            Reason::PatternMismatch => "pattern_mismatch",
        }
    }
}

/// Where a value is in the record: what holds it, and its key or index there.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub holder: Option<&'a Place<'a>>,
    pub step: Step<'a>,
}

#[derive(Clone, Copy)]
pub enum Step<'a> {
    Record,
    Key(&'a str),
    Index(usize),
}

pub const RECORD: Place<'static> = Place { holder: None, step: Step::Record };

pub struct Fault {
    pub reason: Reason,
    pub path: String,
    pub detail: String,
}

/// A value that does not fit where null is allowed, or has no column.
pub struct Drifted {
    /// Index of its node.
    node: usize,
    pub path: String,
    reasons: Vec<&'static str>,
    pub start: u32,
    pub end: u32,
}

impl Drifted {
    pub fn codes(&mut self) -> String {
        self.reasons.sort_unstable();
        self.reasons.dedup();
        self.reasons.join("+")
    }
}

#[derive(Default)]
pub struct Faults {
    pub listed: Vec<Fault>,
    pub drifted: Vec<Drifted>,
    /// Whether one of them is not drift.
    pub are_final: bool,
    /// Whether the record is left to the Python judge.
    pub undecided: bool,
    drift_bytes: usize,
    counts: [u32; REASONS],
}

impl Faults {
    pub fn clear(&mut self) {
        self.listed.clear();
        self.drifted.clear();
        self.are_final = false;
        self.undecided = false;
        self.drift_bytes = 0;
        self.counts = [0; REASONS];
    }

    pub fn add(&mut self, reason: Reason, place: &Place, detail: String) {
        self.are_final = true;
        self.list(reason, place, detail);
    }

    /// Add a reason against the value of `nodes[index]`; `drifts` if it is drift.
    pub fn add_value(
        &mut self,
        reason: Reason,
        place: &Place,
        detail: String,
        drifts: bool,
        index: usize,
        nodes: &[Node],
    ) {
        if !drifts {
            return self.add(reason, place, detail);
        }
        match self.drifted.last_mut() {
            Some(last) if last.node == index => last.reasons.push(reason.code()),
            _ if self.undecided => return,
            _ => {
                let Node { start, end, .. } = nodes[index];
                let (path, reasons) = (path(place, false), vec![reason.code()]);
                self.drift_bytes += path.len();
                self.undecided |= self.drift_bytes > MAX_DRIFT;
                self.drifted.push(Drifted { node: index, path, reasons, start, end });
            }
        }
        self.list(reason, place, detail);
    }

    fn list(&mut self, reason: Reason, place: &Place, detail: String) {
        self.counts[reason as usize] += 1;
        self.undecided |= self.counts[reason as usize] > MAX_FAULTS;
        if self.undecided {
            return; // what is listed is not used
        }
        self.listed.push(Fault { reason, path: path(place, true), detail });
    }
}

/// JSONPath of a place; long keys are cut where it is for a person.
fn path(place: &Place, is_short: bool) -> String {
    let mut steps = Vec::new();
    let mut current = Some(place);
    while let Some(found) = current {
        steps.push(found.step);
        current = found.holder;
    }
    let mut written = String::from("$");
    for step in steps.iter().rev() {
        match step {
            Step::Record => {}
            Step::Index(index) => drop(write!(written, "[{index}]")),
            Step::Key(key) if !(is_short && key.len() > MAX_SHOWN) && is_identifier(key) => {
                written.push('.');
                written.push_str(key);
            }
            Step::Key(key) => {
                // One more than is shown: quoting makes no text shorter.
                let end = key.char_indices().nth(MAX_SHOWN + 1).filter(|_| is_short).map_or(key.len(), |(end, _)| end);
                let key = &key[..end];
                let quoted = key.replace('\\', "\\\\").replace('\'', "\\'");
                written.push_str("['");
                escape_controls(if is_short { cut(&quoted) } else { quoted.into() }.as_ref(), &mut written);
                written.push_str("']");
            }
        }
    }
    written
}

fn is_identifier(key: &str) -> bool {
    let mut letters = key.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}

/// The first characters of a text.
fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

fn escape_controls(text: &str, written: &mut String) {
    for letter in text.chars() {
        match letter {
            '\0'..='\u{1f}' | '\u{7f}' => drop(write!(written, "\\u{:04x}", letter as u32)),
            _ => written.push(letter),
        }
    }
}

/// What a string or a key means.
#[inline]
pub fn text_of<'a>(node: &Node, text: &'a str) -> Cow<'a, str> {
    let raw = &text[node.start as usize + 1..node.end as usize - 1];
    match node.kind {
        Kind::Text => raw.into(),
        _ => unescaped(raw).into(),
    }
}

#[cold]
fn unescaped(raw: &str) -> String {
    let mut meant = Vec::with_capacity(raw.len());
    unescape(raw, &mut meant);
    // The parser refuses what would be no text.
    String::from_utf8_lossy(&meant).into_owned()
}

/// A value as a person reads it: its kind, or its first characters.
pub fn shown(node: &Node, text: &str) -> String {
    match node.kind {
        Kind::Object => "an object".into(),
        Kind::Array => "an array".into(),
        Kind::Null => "null".into(),
        Kind::True => "true".into(),
        Kind::False => "false".into(),
        Kind::Integer | Kind::Number => cut(&text[node.start as usize..node.end as usize]).into_owned(),
        Kind::Text | Kind::Escaped => {
            let mut written = String::from("\"");
            escape_controls(&cut(&text_of(node, text)), &mut written);
            written.push('"');
            written
        }
    }
}

//! Hold a record to a contract: append its values to the columns, or list the reasons against it.
//!
//! The counterpart of `lakeproof.judge.exact`, in the same order, so that both list the same reasons.

use crate::columns::{Column, Values};
use crate::faults::{shown, text_of, Faults, Place, Reason, Step, RECORD};
use crate::plan::{Bound, Form, Kind, Members, Plan, Scalar};
use crate::scalars::{self, Unfit};
use crate::tree;
use crate::tree::Node;
use std::collections::HashSet;

/// Keys of an object that are compared each with each.
const FEW_KEYS: usize = 12;

#[derive(PartialEq, Eq)]
pub enum Verdict {
    Good,
    /// The reasons are listed.
    Bad,
    /// The Python judge is to decide.
    Undecided,
}

/// What is kept from record to record.
#[derive(Default)]
pub struct Scratch {
    pub nodes: Vec<Node>,
    pub faults: Faults,
    slots: Vec<u32>,
}

/// Judge a record that was read from `text` into `scratch.nodes`. Only if it is good, it is a row of `columns`.
pub fn judge(plan: &Plan, text: &str, scratch: &mut Scratch, columns: &mut Column) -> Verdict {
    let Scratch { nodes, faults, slots } = scratch;
    let row = columns.len();
    faults.clear();
    slots.clear();
    let mut record = Record { text, nodes, faults, slots, row, takes_drift: plan.takes_drift, is_zoned: false };
    record.object(&plan.members, false, 0, &RECORD, columns);
    let is_zoned = record.is_zoned;
    let has_drift = !faults.drifted.is_empty();
    let verdict = if faults.undecided || (is_zoned && (faults.are_final || has_drift)) {
        Verdict::Undecided
    } else if faults.are_final {
        Verdict::Bad
    } else if has_drift && plan.has_rules {
        Verdict::Undecided
    } else {
        Verdict::Good
    };
    if verdict != Verdict::Good {
        columns.truncate(row);
    }
    verdict
}

struct Record<'a> {
    text: &'a str,
    nodes: &'a [Node],
    faults: &'a mut Faults,
    /// By field of the objects that are open: index of its value's node, or 0.
    slots: &'a mut Vec<u32>,
    row: usize,
    takes_drift: bool,
    /// Whether a value is left to Python, which may have a reason against it, too.
    is_zoned: bool,
}

impl<'a> Record<'a> {
    fn value(&mut self, kind: &Kind, may_drift: bool, index: usize, place: &Place, column: &mut Column) {
        if self.nodes[index].kind == tree::Kind::Null {
            return column.append_null(self.row);
        }
        match kind {
            Kind::Scalar(scalar) => self.scalar(scalar, may_drift, index, place, column),
            Kind::List { item } => self.list(item, may_drift, index, place, column),
            Kind::Map { value } => self.map(value, may_drift, index, place, column),
            Kind::Object(object) => self.object(&object.members, may_drift, index, place, column),
        }
    }

    /// Note a reason against a value, for which null is appended.
    fn refuse(&mut self, reason: Reason, place: &Place, detail: String, may_drift: bool, index: usize) {
        self.faults.add_value(reason, place, detail, may_drift, index, self.nodes);
    }

    fn wrong_type(&mut self, expected: &str, may_drift: bool, index: usize, place: &Place) {
        self.check_unread(index);
        let reason = if index == 0 { Reason::NotAnObject } else { Reason::WrongType };
        let detail = format!("expected {expected}, got {}", shown(&self.nodes[index], self.text));
        self.refuse(reason, place, detail, may_drift, index);
    }

    fn list(&mut self, item: &Kind, may_drift: bool, index: usize, place: &Place, column: &mut Column) {
        let node = self.nodes[index];
        if node.kind != tree::Kind::Array {
            self.wrong_type("an array", may_drift, index, place);
            return column.append_null(self.row);
        }
        let Values::List(offsets, items) = &mut column.values else { unreachable!("a list's column") };
        let mut child = index + 1;
        let mut position = 0;
        while child < node.next as usize && !self.faults.undecided {
            let place = Place { holder: Some(place), step: Step::Index(position) };
            self.value(item, self.takes_drift, child, &place, items);
            child = self.nodes[child].next as usize;
            position += 1;
        }
        offsets.push(items.len() as i32);
        column.appended(self.row);
    }

    fn map(&mut self, value: &Kind, may_drift: bool, index: usize, place: &Place, column: &mut Column) {
        let node = self.nodes[index];
        if node.kind != tree::Kind::Object {
            self.wrong_type("an object", may_drift, index, place);
            return column.append_null(self.row);
        }
        self.check_keys(index);
        let Values::Map(offsets, keys, items) = &mut column.values else { unreachable!("a map's column") };
        let mut child = index + 1;
        while child < node.next as usize && !self.faults.undecided {
            let key = text_of(&self.nodes[child], self.text);
            keys.push(key.as_bytes());
            let place = Place { holder: Some(place), step: Step::Key(&key) };
            self.value(value, self.takes_drift, child + 1, &place, items);
            child = self.nodes[child + 1].next as usize;
        }
        offsets.push(items.len() as i32);
        column.appended(self.row);
    }

    fn object(&mut self, members: &Members, may_drift: bool, index: usize, place: &Place, column: &mut Column) {
        let node = self.nodes[index];
        if node.kind != tree::Kind::Object {
            self.wrong_type("an object", may_drift, index, place);
            return column.append_null(self.row);
        }
        let Values::Struct(columns, guesses) = &mut column.values else { unreachable!("an object's column") };
        let first = self.slots.len();
        self.slots.resize(first + members.fields.len(), 0);
        let mut has_unknown = false;
        let (mut child, mut position) = (index + 1, 0);
        while child < node.next as usize {
            let key = text_of(&self.nodes[child], self.text);
            let guess = guesses.get(position).map_or(position, |&guess| guess as usize);
            match members.find(&key, guess) {
                Some(field) => {
                    // A key that is repeated: the Python judge says so, and reads the last value.
                    self.faults.undecided |= self.slots[first + field] != 0;
                    self.slots[first + field] = child as u32 + 1;
                    if position == guesses.len() {
                        guesses.push(field as u32);
                    } else if position < guesses.len() {
                        guesses[position] = field as u32;
                    }
                }
                None => has_unknown = true,
            }
            child = self.nodes[child + 1].next as usize;
            position += 1;
        }
        for (number, field) in members.fields.iter().enumerate() {
            let found = self.slots[first + number] as usize;
            let column = &mut columns[number];
            let place = Place { holder: Some(place), step: Step::Key(&field.name) };
            if found != 0 && self.nodes[found].kind != tree::Kind::Null {
                self.value(&field.kind, self.takes_drift && !field.required, found, &place, column);
                continue;
            }
            if field.required {
                let (reason, detail) = match found {
                    0 => (Reason::MissingField, "required, but missing"),
                    _ => (Reason::NullField, "required, but null"),
                };
                self.faults.add(reason, &place, detail.into());
            }
            column.append_null(self.row);
        }
        self.slots.truncate(first);
        if has_unknown {
            self.unknown_fields(members, index, place);
        }
        column.appended(self.row);
    }

    fn unknown_fields(&mut self, members: &Members, index: usize, place: &Place) {
        self.check_keys(index);
        let mut child = index + 1;
        while child < self.nodes[index].next as usize && !self.faults.undecided {
            let key = text_of(&self.nodes[child], self.text);
            if members.find(&key, usize::MAX).is_none() {
                self.check_unread(child + 1);
                let place = Place { holder: Some(place), step: Step::Key(&key) };
                let value = shown(&self.nodes[child + 1], self.text);
                let detail = format!("not in the contract (value: {value})");
                self.refuse(Reason::UnknownField, &place, detail, self.takes_drift, child + 1);
            }
            child = self.nodes[child + 1].next as usize;
        }
    }

    /// Leave the record to Python if a key is repeated in a value that no column reads.
    fn check_unread(&mut self, index: usize) {
        for found in index..self.nodes[index].next as usize {
            if self.nodes[found].kind == tree::Kind::Object {
                self.check_keys(found);
            }
        }
    }

    /// Leave the record to Python if a key of an object is repeated.
    fn check_keys(&mut self, index: usize) {
        let is_repeated = if self.keys(index).nth(FEW_KEYS).is_none() {
            self.keys(index)
                .enumerate()
                .any(|(position, key)| self.keys(index).take(position).any(|other| self.is_same(key, other)))
        } else {
            let mut seen = HashSet::new();
            !self.keys(index).all(|key| seen.insert(text_of(key, self.text)))
        };
        self.faults.undecided |= is_repeated;
    }

    /// The nodes of an object's keys.
    fn keys(&self, index: usize) -> impl Iterator<Item = &'a Node> {
        let nodes = self.nodes;
        let (mut child, end) = (index + 1, nodes[index].next as usize);
        std::iter::from_fn(move || {
            let key = (child < end).then(|| &nodes[child])?;
            child = nodes[child + 1].next as usize;
            Some(key)
        })
    }

    /// Whether two keys mean the same.
    fn is_same(&self, key: &Node, other: &Node) -> bool {
        if key.kind == tree::Kind::Text && other.kind == tree::Kind::Text {
            let bytes = self.text.as_bytes();
            return bytes[key.start as usize..key.end as usize] == bytes[other.start as usize..other.end as usize];
        }
        text_of(key, self.text) == text_of(other, self.text)
    }

    fn scalar(&mut self, scalar: &Scalar, may_drift: bool, index: usize, place: &Place, column: &mut Column) {
        match self.append(&scalar.form, index, column) {
            Ok(_) if scalar.is_unconstrained() => column.appended(self.row),
            Ok(number) => self.hold(scalar, number, may_drift, index, place, column),
            Err(Unfit(Reason::WrongType, expected)) => {
                self.wrong_type(&expected, may_drift, index, place);
                column.append_null(self.row);
            }
            Err(Unfit(reason, expected)) => {
                let detail = format!("expected {expected}, got {}", shown(&self.nodes[index], self.text));
                self.refuse(reason, place, detail, may_drift, index);
                column.append_null(self.row);
            }
        }
    }

    /// Hold a value that was appended to the contract's constraints.
    fn hold(
        &mut self,
        scalar: &Scalar,
        number: Number,
        may_drift: bool,
        index: usize,
        place: &Place,
        column: &mut Column,
    ) {
        let node = &self.nodes[index];
        let before = self.faults.listed.len();
        if !scalar.allowed.is_empty() {
            let is_text = matches!(node.kind, tree::Kind::Text | tree::Kind::Escaped);
            let value = if is_text { text_of(node, self.text) } else { self.token(index).into() };
            if !scalar.allowed.iter().any(|allowed| *allowed == value) {
                let detail = format!("{} is not an allowed value", shown(node, self.text));
                self.refuse(Reason::NotAllowed, place, detail, may_drift, index);
            }
        }
        for (bound, is_least) in [(&scalar.minimum, true), (&scalar.maximum, false)] {
            if let Some(bound) = bound.as_ref().filter(|bound| !number.is_within(bound, is_least)) {
                let detail = format!("expected {}, got {}", bound.expected, shown(node, self.text));
                self.refuse(Reason::OutOfRange, place, detail, may_drift, index);
            }
        }
        if let Values::Texts(texts) = &column.values {
            if scalar.min_length.is_some() || scalar.max_length.is_some() || scalar.pattern.is_some() {
                self.hold_text(scalar, std::str::from_utf8(texts.last()).unwrap_or_default(), may_drift, index, place);
            }
        }
        column.appended(self.row);
        if self.faults.listed.len() > before {
            // Null instead: the record may pass without this value.
            column.truncate(column.len() - 1);
            column.append_null(self.row);
        }
    }

    fn hold_text(&mut self, scalar: &Scalar, text: &str, may_drift: bool, index: usize, place: &Place) {
        let node = &self.nodes[index];
        if scalar.min_length.is_some() || scalar.max_length.is_some() {
            let length = text.chars().count();
            let limits = [("least", scalar.min_length, true), ("most", scalar.max_length, false)];
            for (word, limit, is_least) in limits {
                if let Some(limit) = limit.filter(|&limit| if is_least { length < limit } else { length > limit }) {
                    let value = shown(node, self.text);
                    let detail = format!("expected a length of at {word} {limit}, got {length}: {value}");
                    self.refuse(Reason::WrongLength, place, detail, may_drift, index);
                }
            }
        }
        if let Some(pattern) = scalar.pattern.as_ref().filter(|pattern| !pattern.regex.is_match(text)) {
            let detail = format!("expected text matching {}, got {}", pattern.shown, shown(node, self.text));
            self.refuse(Reason::PatternMismatch, place, detail, may_drift, index);
        }
    }

    fn token(&self, index: usize) -> &'a str {
        let node = &self.nodes[index];
        &self.text[node.start as usize..node.end as usize]
    }

    /// Append a value to the column, but not to its validity; return what bounds are compared with.
    #[inline]
    fn append(&mut self, form: &Form, index: usize, column: &mut Column) -> Result<Number, Unfit> {
        let node = &self.nodes[index];
        let is_text = matches!(node.kind, tree::Kind::Text | tree::Kind::Escaped);
        let is_number = matches!(node.kind, tree::Kind::Integer | tree::Kind::Number);
        match (form, &mut column.values) {
            (Form::String | Form::Zoned, Values::Texts(texts)) => {
                expect(is_text, "a string")?;
                self.is_zoned |= matches!(form, Form::Zoned);
                match node.kind {
                    tree::Kind::Text => texts.push(text_of(node, self.text).as_bytes()),
                    _ => texts.push_escaped(&self.text[node.start as usize + 1..node.end as usize - 1]),
                }
                Ok(Number::Whole(0))
            }
            (Form::Any, Values::Texts(texts)) => {
                expect(!matches!(node.kind, tree::Kind::Array | tree::Kind::Object), "a scalar")?;
                match is_text {
                    true => texts.push(text_of(node, self.text).as_bytes()),
                    false => texts.push(self.token(index).as_bytes()),
                }
                Ok(Number::Whole(0))
            }
            (Form::Boolean, Values::Booleans(values)) => {
                expect(matches!(node.kind, tree::Kind::True | tree::Kind::False), "true or false")?;
                values.push(node.kind == tree::Kind::True);
                Ok(Number::Whole(0))
            }
            (Form::Int, Values::Ints(values)) => {
                expect(node.kind == tree::Kind::Integer, "an integer without a decimal point or exponent")?;
                let number = scalars::integer(self.token(index), 32)?;
                values.push(number as i32);
                Ok(Number::Whole(number.into()))
            }
            (Form::Long, Values::Longs(values)) => {
                expect(node.kind == tree::Kind::Integer, "an integer without a decimal point or exponent")?;
                let number = scalars::integer(self.token(index), 64)?;
                values.push(number);
                Ok(Number::Whole(number.into()))
            }
            (Form::Float, Values::Floats(values)) => {
                expect(is_number, "a number")?;
                let (float, number) = scalars::float(self.within(index, scalars::MAX_FLOAT))?;
                values.push(float);
                Ok(Number::Float(number))
            }
            (Form::Double, Values::Doubles(values)) => {
                expect(is_number, "a number")?;
                let number = scalars::double(self.within(index, scalars::MAX_FLOAT))?;
                values.push(number);
                Ok(Number::Float(number))
            }
            (Form::Decimal { precision, scale }, Values::Decimals(values)) => {
                expect(is_number, "a number")?;
                let number = scalars::decimal(self.within(index, scalars::MAX_DECIMAL), *precision, *scale)?;
                values.push(number);
                Ok(Number::Whole(number))
            }
            (Form::Date, Values::Ints(values)) => {
                expect(is_text, "a string")?;
                let days = scalars::date(&text_of(node, self.text))?;
                values.push(days);
                Ok(Number::Whole(days.into()))
            }
            (Form::Timestamp(times), Values::Longs(values)) => {
                expect(is_text, "a string")?;
                let microseconds = scalars::timestamp(&text_of(node, self.text), times)?;
                values.push(microseconds);
                Ok(Number::Whole(microseconds.into()))
            }
            (Form::Epoch { per_second }, Values::Longs(values)) => {
                let is_integer = node.kind == tree::Kind::Integer;
                if *per_second == 1 {
                    expect(is_number, "a number")?;
                } else if !is_number {
                    scalars::epoch("", false, *per_second)?; // says what is expected
                }
                let token = if is_integer { self.token(index) } else { self.within(index, scalars::MAX_DECIMAL) };
                let microseconds = scalars::epoch(token, is_integer, *per_second)?;
                values.push(microseconds);
                Ok(Number::Whole(microseconds.into()))
            }
            _ => unreachable!("a column of another type"),
        }
    }

    /// A number; one that is longer is left to Python.
    fn within(&mut self, index: usize, longest: usize) -> &'a str {
        let token = self.token(index);
        self.faults.undecided |= token.len() > longest;
        if token.len() > longest {
            "0"
        } else {
            token
        }
    }
}

fn expect(is_met: bool, expected: &str) -> Result<(), Unfit> {
    if is_met {
        return Ok(());
    }
    Err(Unfit(Reason::WrongType, expected.into()))
}

/// A number as bounds are compared with it.
enum Number {
    Whole(i128),
    Float(f64),
}

impl Number {
    fn is_within(&self, bound: &Bound, is_least: bool) -> bool {
        match *self {
            Number::Whole(number) if is_least => number >= bound.whole,
            Number::Whole(number) => number <= bound.whole,
            Number::Float(number) => {
                let (less, greater) = if is_least { (bound.number, number) } else { (number, bound.number) };
                if bound.exclusive {
                    greater > less
                } else {
                    greater >= less
                }
            }
        }
    }
}

//! A contract as `lakeproof.judge.native` compiles it: what a record is held to.

use regex::Regex;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::collections::HashMap;

#[derive(Deserialize)]
pub struct Plan {
    #[serde(rename = "fields", deserialize_with = "members")]
    pub members: Members,
    /// Whether values that do not fit make null, where null is allowed, and unknown fields are put aside.
    pub takes_drift: bool,
    /// Whether the contract has rules: a record with drift is left to the Python judge then, which keeps its reasons.
    pub has_rules: bool,
}

#[derive(Deserialize)]
pub struct Field {
    pub name: String,
    pub required: bool,
    pub kind: Kind,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Kind {
    Scalar(Scalar),
    List { item: Box<Kind> },
    Map { value: Box<Kind> },
    Object(Object),
}

#[derive(Deserialize)]
pub struct Object {
    #[serde(rename = "fields", deserialize_with = "members")]
    pub members: Members,
}

/// The fields of an object, found by name.
pub struct Members {
    pub fields: Vec<Field>,
    by_name: HashMap<String, usize>,
}

#[derive(Deserialize)]
pub struct Scalar {
    pub form: Form,
    #[serde(default)]
    pub allowed: Vec<String>,
    pub minimum: Option<Bound>,
    pub maximum: Option<Bound>,
    pub min_length: Option<usize>,
    pub max_length: Option<usize>,
    pub pattern: Option<Pattern>,
}

/// The type of a scalar, and how it is written.
#[derive(Deserialize)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum Form {
    String,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Date,
    Any,
    Decimal {
        precision: u32,
        scale: u32,
    },
    Timestamp(Times),
    Epoch {
        per_second: i64,
    },
    /// A timestamp of a time zone: the column has its text, and Python converts it.
    Zoned,
}

#[derive(Deserialize)]
pub struct Times {
    /// Between date and time; none for a date.
    pub separator: Option<char>,
    /// Whether a UTC offset must be there, or may be.
    pub needs_offset: bool,
    pub takes_offset: bool,
    /// What is expected, in words.
    pub expected: String,
}

#[derive(Deserialize)]
pub struct Bound {
    /// The least or the greatest value of the column that is in range, in its unit.
    #[serde(default, deserialize_with = "whole")]
    pub whole: i128,
    #[serde(default, deserialize_with = "number")]
    pub number: f64,
    pub exclusive: bool,
    /// What is expected, in words.
    pub expected: String,
}

pub struct Pattern {
    pub regex: Regex,
    pub shown: String,
}

impl Scalar {
    pub fn is_unconstrained(&self) -> bool {
        self.allowed.is_empty()
            && self.minimum.is_none()
            && self.maximum.is_none()
            && self.min_length.is_none()
            && self.max_length.is_none()
            && self.pattern.is_none()
    }
}

impl Members {
    pub fn new(fields: Vec<Field>) -> Self {
        let by_name = fields.iter().enumerate().map(|(index, field)| (field.name.clone(), index)).collect();
        Members { fields, by_name }
    }

    /// Index of a field. `guess` is tried first: records of a stream have their keys in the same order.
    pub fn find(&self, key: &str, guess: usize) -> Option<usize> {
        match self.fields.get(guess) {
            Some(field) if field.name == key => Some(guess),
            _ => self.by_name.get(key).copied(),
        }
    }
}

fn members<'de, D: Deserializer<'de>>(source: D) -> Result<Members, D::Error> {
    Vec::deserialize(source).map(Members::new)
}

fn whole<'de, D: Deserializer<'de>>(source: D) -> Result<i128, D::Error> {
    String::deserialize(source)?.parse().map_err(D::Error::custom)
}

// As text, which Rust reads as Python does: to the nearest double.
fn number<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    String::deserialize(source)?.parse().map_err(D::Error::custom)
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let (shown, portable) = <(String, String)>::deserialize(source)?;
        let regex = Regex::new(&literal_in_classes(&portable)).map_err(D::Error::custom)?;
        Ok(Pattern { regex, shown })
    }
}

/// `pattern` with `&` and `~` escaped, which twice in a class mean sets to this engine alone.
fn literal_in_classes(pattern: &str) -> String {
    let mut written = String::with_capacity(pattern.len());
    let mut escaped = false;
    for letter in pattern.chars() {
        if !escaped && matches!(letter, '&' | '~') {
            written.push('\\');
        }
        escaped = letter == '\\' && !escaped;
        written.push(letter);
    }
    written
}

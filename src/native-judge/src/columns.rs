//! Columns in the making, in Arrow's layout.

use crate::plan::{Form, Kind, Members};
use crate::tree::unescape;

/// Which rows are not null; nothing is kept until there is one that is.
#[derive(Default)]
pub struct Validity {
    rows: usize,
    bits: Vec<u8>,
}

impl Validity {
    pub fn len(&self) -> usize {
        self.rows
    }

    #[inline]
    fn push(&mut self, is_valid: bool) {
        if !is_valid && self.bits.is_empty() {
            self.bits.resize(self.rows / 8 + 1, 0xFF);
        }
        if !self.bits.is_empty() {
            let (byte, bit) = (self.rows / 8, self.rows % 8);
            if byte == self.bits.len() {
                self.bits.push(0xFF);
            }
            if is_valid {
                self.bits[byte] |= 1 << bit;
            } else {
                self.bits[byte] &= !(1 << bit);
            }
        }
        self.rows += 1;
    }

    fn truncate(&mut self, rows: usize) {
        self.rows = rows;
        self.bits.truncate(rows.div_ceil(8));
    }

    /// The bitmap; None where no row is null.
    pub fn finish(&self) -> Option<&[u8]> {
        (!self.bits.is_empty()).then_some(&self.bits)
    }
}

/// Strings.
pub struct Texts {
    offsets: Vec<i32>,
    data: Vec<u8>,
}

impl Default for Texts {
    fn default() -> Self {
        Texts { offsets: vec![0], data: Vec::new() }
    }
}

impl Texts {
    fn with_capacity(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Texts { offsets, data: Vec::new() }
    }

    #[inline]
    pub fn push(&mut self, text: &[u8]) {
        self.data.extend_from_slice(text);
        self.end();
    }

    pub fn push_escaped(&mut self, raw: &str) {
        unescape(raw, &mut self.data);
        self.end();
    }

    #[inline]
    fn end(&mut self) {
        self.offsets.push(self.data.len() as i32);
    }

    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn last(&self) -> &[u8] {
        let start = self.offsets[self.offsets.len() - 2] as usize;
        &self.data[start..]
    }

    pub fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.data.truncate(self.offsets[rows] as usize);
    }

    pub fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    pub fn data(&self) -> &[u8] {
        &self.data
    }
}

pub enum Values {
    Booleans(Vec<bool>),
    Ints(Vec<i32>),
    Longs(Vec<i64>),
    Floats(Vec<f32>),
    Doubles(Vec<f64>),
    Decimals(Vec<i128>),
    Texts(Texts),
    List(Vec<i32>, Box<Column>),
    Map(Vec<i32>, Texts, Box<Column>),
    Struct(Vec<Column>, Guesses),
}

/// Which field was at each position of the object that was read last.
pub type Guesses = Vec<u32>;

pub struct Column {
    pub validity: Validity,
    pub values: Values,
    /// Index of the record of each value, where Python looks at the values again.
    pub owners: Option<Vec<u32>>,
}

impl Column {
    /// Columns of records, with room for a number of rows.
    pub fn of_record(members: &Members, rows: usize) -> Self {
        let columns = members.fields.iter().map(|field| Column::new(&field.kind, rows)).collect();
        Column { validity: Validity::default(), values: Values::Struct(columns, Guesses::new()), owners: None }
    }

    fn new(kind: &Kind, rows: usize) -> Self {
        let mut owners = None;
        let values = match kind {
            Kind::List { item } => Values::List(vec![0], Box::new(Column::new(item, 0))),
            Kind::Map { value } => Values::Map(vec![0], Texts::default(), Box::new(Column::new(value, 0))),
            Kind::Object(object) => return Column::of_record(&object.members, rows),
            Kind::Scalar(scalar) => match scalar.form {
                Form::Boolean => Values::Booleans(Vec::with_capacity(rows)),
                Form::Int | Form::Date => Values::Ints(Vec::with_capacity(rows)),
                Form::Long | Form::Timestamp(_) | Form::Epoch { .. } => Values::Longs(Vec::with_capacity(rows)),
                Form::Float => Values::Floats(Vec::with_capacity(rows)),
                Form::Double => Values::Doubles(Vec::with_capacity(rows)),
                Form::Decimal { .. } => Values::Decimals(Vec::with_capacity(rows)),
                Form::String | Form::Any => Values::Texts(Texts::with_capacity(rows)),
                Form::Zoned => {
                    owners = Some(Vec::with_capacity(rows));
                    Values::Texts(Texts::with_capacity(rows))
                }
            },
        };
        Column { validity: Validity::default(), values, owners }
    }

    pub fn len(&self) -> usize {
        self.validity.len()
    }

    /// Say that a value was appended to `values`.
    #[inline]
    pub fn appended(&mut self, row: usize) {
        self.validity.push(true);
        if let Some(owners) = &mut self.owners {
            owners.push(row as u32);
        }
    }

    pub fn append_null(&mut self, row: usize) {
        match &mut self.values {
            Values::Booleans(values) => values.push(false),
            Values::Ints(values) => values.push(0),
            Values::Longs(values) => values.push(0),
            Values::Floats(values) => values.push(0.0),
            Values::Doubles(values) => values.push(0.0),
            Values::Decimals(values) => values.push(0),
            Values::Texts(texts) => texts.end(),
            Values::List(offsets, _) | Values::Map(offsets, ..) => offsets.push(*offsets.last().expect("the first")),
            Values::Struct(columns, _) => columns.iter_mut().for_each(|column| column.append_null(row)),
        }
        self.validity.push(false);
        if let Some(owners) = &mut self.owners {
            owners.push(row as u32);
        }
    }

    /// Take rows back.
    pub fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            Values::Booleans(values) => values.truncate(rows),
            Values::Ints(values) => values.truncate(rows),
            Values::Longs(values) => values.truncate(rows),
            Values::Floats(values) => values.truncate(rows),
            Values::Doubles(values) => values.truncate(rows),
            Values::Decimals(values) => values.truncate(rows),
            Values::Texts(texts) => texts.truncate(rows),
            Values::List(offsets, items) => {
                offsets.truncate(rows + 1);
                items.truncate(offsets[rows] as usize);
            }
            Values::Map(offsets, keys, items) => {
                offsets.truncate(rows + 1);
                keys.truncate(offsets[rows] as usize);
                items.truncate(offsets[rows] as usize);
            }
            Values::Struct(columns, _) => columns.iter_mut().for_each(|column| column.truncate(rows)),
        }
        self.validity.truncate(rows);
        if let Some(owners) = &mut self.owners {
            owners.truncate(rows);
        }
    }
}

pub fn bits_of(values: &[bool]) -> Vec<u8> {
    values
        .chunks(8)
        .map(|eight| eight.iter().enumerate().fold(0, |byte, (bit, &value)| byte | (u8::from(value) << bit)))
        .collect()
}

//! Texts of rows, as `consumer.texts` defines them, from the columns of a table.

use pyo3::pybacked::PyBackedBytes;
use pyo3::FromPyObject;

/// A column, or a part of one, as `consumer.native_hashes` describes it. The names are those of an object's fields,
/// with their lengths before them.
#[derive(FromPyObject)]
pub struct Part(String, usize, Option<PyBackedBytes>, Vec<PyBackedBytes>, Vec<Part>, Vec<PyBackedBytes>, usize);

struct Column {
    rows: usize,
    /// A byte for each row; None where no row is null.
    validity: Option<PyBackedBytes>,
    values: Values,
}

enum Values {
    Booleans(PyBackedBytes),
    Ints(PyBackedBytes),
    Decimals(PyBackedBytes, usize),
    Texts(Offsets, PyBackedBytes),
    Bytes(Offsets, PyBackedBytes),
    List(Offsets, Box<Column>),
    Map(Offsets, Box<Column>, Box<Column>),
    Object(Vec<(PyBackedBytes, Column)>),
}

/// Where values begin, each of 64 bits, and where the last one ends.
struct Offsets(PyBackedBytes);

impl Offsets {
    fn of(&self, row: usize) -> std::ops::Range<usize> {
        (eight(&self.0, row) as usize)..(eight(&self.0, row + 1) as usize)
    }
}

impl TryFrom<Part> for Column {
    type Error = String;

    fn try_from(part: Part) -> Result<Self, String> {
        let Part(form, rows, validity, buffers, children, names, scale) = part;
        let mut buffers = buffers.into_iter();
        let mut buffer = || buffers.next().ok_or_else(|| format!("a buffer is missing: {form}"));
        let mut children = children.into_iter().map(Column::try_from);
        let mut child = || children.next().unwrap_or_else(|| Err(format!("a child is missing: {form}"))).map(Box::new);
        let values = match form.as_str() {
            "boolean" => Values::Booleans(buffer()?),
            "int" => Values::Ints(buffer()?),
            "decimal" => Values::Decimals(buffer()?, scale),
            "text" => Values::Texts(Offsets(buffer()?), buffer()?),
            "bytes" => Values::Bytes(Offsets(buffer()?), buffer()?),
            "list" => Values::List(Offsets(buffer()?), child()?),
            "map" => Values::Map(Offsets(buffer()?), child()?, child()?),
            "object" => Values::Object(names.into_iter().zip(children.collect::<Result<Vec<_>, _>>()?).collect()),
            _ => return Err(format!("unknown form: {form}")),
        };
        Ok(Column { rows, validity, values })
    }
}

impl Column {
    /// Whether all rows have the same value.
    fn is_same(&self) -> bool {
        let is_same = |bytes: &[u8], size: usize| bytes.chunks_exact(size).all(|each| each == &bytes[..size]);
        self.validity.is_none()
            && self.rows > 0
            && match &self.values {
                Values::Ints(bytes) => is_same(bytes, 8),
                Values::Texts(offsets, bytes) => {
                    let size = offsets.of(0).len();
                    size > 0 && (1..self.rows).all(|row| offsets.of(row).len() == size) && is_same(bytes, size)
                }
                _ => false,
            }
    }

    fn is_valid(&self, row: usize) -> bool {
        self.validity.as_ref().map_or(true, |bytes| bytes[row] != 0)
    }

    /// Append the text of a value that is not null.
    fn append_text(&self, row: usize, text: &mut Vec<u8>) {
        match &self.values {
            Values::Booleans(bytes) => text.extend(if bytes[row] == 0 { &b"false"[..] } else { b"true" }),
            Values::Ints(bytes) => text.extend(itoa::Buffer::new().format(eight(bytes, row)).as_bytes()),
            Values::Decimals(bytes, scale) => append_decimal(sixteen(bytes, row), *scale, text),
            Values::Texts(offsets, bytes) => text.extend_from_slice(&bytes[offsets.of(row)]),
            Values::Bytes(offsets, bytes) => {
                let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
                text.extend(bytes[offsets.of(row)].iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
            }
            Values::List(offsets, items) => offsets.of(row).for_each(|item| items.append_framed_or_null(item, text)),
            Values::Map(offsets, keys, items) => append_entries(offsets.of(row), keys, items, text),
            Values::Object(fields) => {
                for (name, field) in fields.iter().filter(|(_, field)| field.is_valid(row)) {
                    text.extend_from_slice(name);
                    field.append_framed(row, text);
                }
            }
        }
    }

    /// Append the text of a value with its length before it.
    fn append_framed(&self, row: usize, text: &mut Vec<u8>) {
        match &self.values {
            Values::Texts(offsets, bytes) => append_frame(&bytes[offsets.of(row)], text),
            Values::Ints(bytes) => append_frame(itoa::Buffer::new().format(eight(bytes, row)).as_bytes(), text),
            _ => {
                let start = text.len();
                self.append_text(row, text);
                let mut buffer = itoa::Buffer::new();
                let length = buffer.format(text.len() - start);
                text.extend(length.as_bytes());
                text.push(b':');
                text[start..].rotate_right(length.len() + 1);
            }
        }
    }

    fn append_framed_or_null(&self, row: usize, text: &mut Vec<u8>) {
        if self.is_valid(row) {
            self.append_framed(row, text);
        } else {
            text.push(b'-');
        }
    }
}

/// Rows of a table, in pieces of their texts.
pub struct Rows {
    rows: usize,
    pieces: Vec<Piece>,
}

enum Piece {
    /// Fields with one value for all rows, as most of those that say where a row comes from.
    Same(Vec<u8>),
    Each(PyBackedBytes, Column),
}

impl TryFrom<Part> for Rows {
    type Error = String;

    fn try_from(part: Part) -> Result<Self, String> {
        let Column { rows, values: Values::Object(fields), .. } = Column::try_from(part)? else {
            return Err("rows are not objects".to_string());
        };
        let mut pieces = Vec::new();
        for (name, field) in fields {
            if !field.is_same() {
                pieces.push(Piece::Each(name, field));
                continue;
            }
            if !matches!(pieces.last(), Some(Piece::Same(_))) {
                pieces.push(Piece::Same(Vec::new()));
            }
            if let Some(Piece::Same(text)) = pieces.last_mut() {
                text.extend_from_slice(&name);
                field.append_framed(0, text);
            }
        }
        Ok(Rows { rows, pieces })
    }
}

impl Rows {
    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn append_text(&self, row: usize, text: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Same(fields) => text.extend_from_slice(fields),
                Piece::Each(name, field) if field.is_valid(row) => {
                    text.extend_from_slice(name);
                    field.append_framed(row, text);
                }
                Piece::Each(..) => {}
            }
        }
    }
}

/// Append the entries of a map in the order of their texts, which mostly is the one that they have.
fn append_entries(entries: std::ops::Range<usize>, keys: &Column, items: &Column, text: &mut Vec<u8>) {
    let append = |entry, text: &mut Vec<u8>| {
        keys.append_framed(entry, text);
        items.append_framed_or_null(entry, text);
    };
    let begin = text.len();
    let mut last = begin..begin;
    for entry in entries.clone() {
        let start = text.len();
        append(entry, text);
        if text[last] > text[start..] {
            text.truncate(begin);
            let mut texts = vec![Vec::new(); entries.len()];
            texts.iter_mut().zip(entries).for_each(|(text, entry)| append(entry, text));
            texts.sort_unstable();
            texts.iter().for_each(|entry| text.extend(entry));
            return;
        }
        last = start..text.len();
    }
}

#[inline]
fn append_frame(value: &[u8], text: &mut Vec<u8>) {
    let length = value.len();
    let digit = |place: usize| b'0' + (length / place % 10) as u8;
    // Arrays of a known size are copied without a call, which takes longer than the copy.
    match length {
        0..=9 => text.extend_from_slice(&[digit(1), b':']),
        10..=99 => text.extend_from_slice(&[digit(10), digit(1), b':']),
        100..=999 => text.extend_from_slice(&[digit(100), digit(10), digit(1), b':']),
        _ => {
            text.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            text.push(b':');
        }
    }
    text.extend_from_slice(value);
}

/// Append a decimal as Arrow writes it: with all decimals, or, close to 0, with an exponent.
fn append_decimal(units: i128, scale: usize, text: &mut Vec<u8>) {
    if units < 0 {
        text.push(b'-');
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(units.unsigned_abs());
    if scale + 1 > digits.len() + 6 {
        text.extend(&digits.as_bytes()[..1]);
        if digits.len() > 1 {
            text.push(b'.');
            text.extend(&digits.as_bytes()[1..]);
        }
        text.extend(format!("E-{}", scale + 1 - digits.len()).as_bytes());
    } else if scale == 0 {
        text.extend(digits.as_bytes());
    } else {
        let digits = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        text.extend(whole.as_bytes());
        text.push(b'.');
        text.extend(fraction.as_bytes());
    }
}

#[inline]
fn eight(bytes: &[u8], row: usize) -> i64 {
    i64::from_le_bytes(bytes[8 * row..8 * row + 8].try_into().expect("eight bytes"))
}

fn sixteen(bytes: &[u8], row: usize) -> i128 {
    i128::from_le_bytes(bytes[16 * row..16 * row + 16].try_into().expect("sixteen bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_as_arrow_writes_them() {
        let text = |units, scale| {
            let mut text = Vec::new();
            append_decimal(units, scale, &mut text);
            String::from_utf8(text).unwrap()
        };
        assert_eq!(text(-123, 0), "-123");
        assert_eq!(text(5, 2), "0.05");
        assert_eq!(text(-12345, 2), "-123.45");
        assert_eq!(text(10_000, 10), "0.0000010000");
        assert_eq!(text(-1500, 10), "-1.500E-7");
        assert_eq!(text(0, 10), "0E-10");
    }
}

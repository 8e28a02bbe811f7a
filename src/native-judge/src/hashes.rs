//! Hashes of the rows of a table, from their texts.

use crate::md5;
use crate::texts::Rows;
use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest};

/// The first 64 bits of MD5 of each row, 8 bytes each.
pub fn row_hashes(rows: &Rows) -> Vec<u8> {
    let mut hashes = Vec::with_capacity(8 * rows.len());
    let mut texts = vec![Vec::new(); md5::LANES];
    for start in (0..rows.len()).step_by(md5::LANES) {
        let some = start..rows.len().min(start + md5::LANES);
        let texts = &mut texts[..some.len()];
        for (row, text) in some.zip(texts.iter_mut()) {
            text.clear();
            rows.append_text(row, text);
        }
        md5::hash(texts, &mut hashes);
    }
    hashes
}

/// BLAKE2b of each row, 16 bytes each.
pub fn content_hashes(rows: &Rows) -> Vec<u8> {
    let mut hashes = Vec::with_capacity(16 * rows.len());
    let mut text = Vec::new();
    for row in 0..rows.len() {
        text.clear();
        rows.append_text(row, &mut text);
        hashes.extend(Blake2b::<U16>::digest(&text));
    }
    hashes
}

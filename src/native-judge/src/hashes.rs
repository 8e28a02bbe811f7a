//! Hashes of the rows of a table, from their texts, and of the bytes of files.

use crate::md5;
use crate::texts::Rows;
use blake2b_simd::many::{hash_many, HashManyJob};
use blake2b_simd::Params;

/// Bytes of a hash of content.
const BYTES: usize = 16;
/// How many texts are hashed by one call: a lane whose text ends takes the next one.
const TEXTS: usize = 64;

/// The first 64 bits of MD5 of each row, 8 bytes each.
pub fn row_hashes(rows: &Rows) -> Vec<u8> {
    let mut hashes = Vec::with_capacity(8 * rows.len());
    in_groups(rows, md5::LANES, |texts| md5::hash(texts, &mut hashes));
    hashes
}

/// BLAKE2b of each row, 16 bytes each.
pub fn content_hashes(rows: &Rows) -> Vec<u8> {
    let mut hashes = Vec::with_capacity(BYTES * rows.len());
    in_groups(rows, TEXTS, |texts| append_blake2b(texts, &mut hashes));
    hashes
}

/// BLAKE2b of each file's bytes, 16 bytes each.
pub fn file_hashes<T: AsRef<[u8]>>(contents: &[T]) -> Vec<u8> {
    let mut hashes = Vec::with_capacity(BYTES * contents.len());
    append_blake2b(contents, &mut hashes);
    hashes
}

/// Call `hash` with the texts of all rows, at most `size` at once.
fn in_groups(rows: &Rows, size: usize, mut hash: impl FnMut(&mut [Vec<u8>])) {
    let mut texts = vec![Vec::new(); size];
    for start in (0..rows.len()).step_by(size) {
        let some = start..rows.len().min(start + size);
        let texts = &mut texts[..some.len()];
        for (row, text) in some.zip(texts.iter_mut()) {
            text.clear();
            rows.append_text(row, text);
        }
        hash(texts);
    }
}

/// Texts are hashed side by side, in the lanes of the processor's vectors.
fn append_blake2b<T: AsRef<[u8]>>(texts: &[T], hashes: &mut Vec<u8>) {
    let mut params = Params::new();
    params.hash_length(BYTES);
    let mut jobs: Vec<_> = texts.iter().map(|text| HashManyJob::new(&params, text.as_ref())).collect();
    hash_many(jobs.iter_mut());
    jobs.iter().for_each(|job| hashes.extend(job.to_hash().as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_lengths_side_by_side() {
        let contents = ["", "abc", "", &"0123456789".repeat(100)];
        let found: Vec<_> = file_hashes(&contents).iter().map(|byte| format!("{byte:02x}")).collect();
        let empty = "cae66941d9efbd404e4d88758ea67670";
        let (abc, long) = ("cf4ab791c62b8d2b2109c90275287816", "5888d938885137c908acf598d377ccdb");
        assert_eq!(found.concat(), [empty, abc, empty, long].concat());
    }
}

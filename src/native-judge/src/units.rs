//! The units of batches, and what came of them: `lakeproof.judge.split`, without words where it refuses.

use crate::columns::{Column, Texts};
use crate::judge::{judge, Scratch, Verdict};
use crate::plan::Plan;
use crate::scan::{container_end, content_end, element_end, is_object, line};
use crate::tree::{parse, skip_space};

const BOM: &[u8] = b"\xef\xbb\xbf";
/// A larger record is left to Python: offsets in the columns have 32 bits.
const LARGEST_RECORD: usize = 1 << 30;

/// Bytes of a record, by which rows are expected.
const USUAL_RECORD: usize = 256;

/// How much is judged at once.
pub struct Limits {
    /// Bytes of a unit that is judged at all.
    pub record_bytes: usize,
    /// Units of a chunk, and their bytes unless a single one has more.
    pub units: usize,
    pub bytes: usize,
}

/// Units: the numbers of their batches, their positions, and where they are in the batches.
#[derive(Default)]
pub struct Units {
    pub batches: Vec<i64>,
    pub positions: Vec<i64>,
    pub starts: Vec<i64>,
    pub ends: Vec<i64>,
}

impl Units {
    fn push(&mut self, batch: usize, position: i64, start: usize, end: usize) {
        self.batches.push(batch as i64);
        self.positions.push(position);
        self.starts.push(start as i64);
        self.ends.push(end as i64);
    }

    pub fn len(&self) -> usize {
        self.batches.len()
    }

    fn truncate(&mut self, count: usize) {
        for part in [&mut self.batches, &mut self.positions, &mut self.starts, &mut self.ends] {
            part.truncate(count);
        }
    }
}

/// Lists of texts, for each good record or bad unit.
pub struct Lists<const N: usize> {
    pub offsets: Vec<i32>,
    pub texts: [Texts; N],
}

impl<const N: usize> Default for Lists<N> {
    fn default() -> Self {
        Lists { offsets: vec![0], texts: std::array::from_fn(|_| Texts::default()) }
    }
}

impl<const N: usize> Lists<N> {
    fn push(&mut self, values: [&str; N]) {
        for (texts, value) in self.texts.iter_mut().zip(values) {
            texts.push(value.as_bytes());
        }
    }

    fn end(&mut self) {
        self.offsets.push(self.texts[0].len() as i32);
    }

    fn truncate(&mut self, count: usize) {
        self.offsets.truncate(count + 1);
        for texts in &mut self.texts {
            texts.truncate(self.offsets[count] as usize);
        }
    }
}

/// What came of a run of units.
pub struct Chunk {
    pub columns: Column,
    pub good: Units,
    /// For each good record: codes, path and text of the values that drifted.
    pub drift: Lists<3>,
    pub bad: Units,
    /// For each bad unit: code, path and detail of its reasons.
    pub reasons: Lists<3>,
    pub raw: Texts,
    pub undecided: Units,
    pub too_large: Units,
    /// Batches that cannot be split.
    pub refused: Vec<i64>,
    /// The batch of the first unit behind all of those, and its position in it.
    pub following: (usize, i64),
    units: usize,
    bytes: usize,
}

/// How much of a chunk there was.
#[derive(Default, Clone, Copy)]
struct Mark {
    good: usize,
    bad: usize,
    undecided: usize,
    too_large: usize,
}

impl Chunk {
    fn new(plan: &Plan, rows: usize) -> Self {
        Chunk {
            columns: Column::of_record(&plan.members, rows),
            good: Units::default(),
            drift: Lists::default(),
            bad: Units::default(),
            reasons: Lists::default(),
            raw: Texts::default(),
            undecided: Units::default(),
            too_large: Units::default(),
            refused: Vec::new(),
            following: (0, 0),
            units: 0,
            bytes: 0,
        }
    }

    fn mark(&self) -> Mark {
        Mark {
            good: self.good.len(),
            bad: self.bad.len(),
            undecided: self.undecided.len(),
            too_large: self.too_large.len(),
        }
    }

    fn truncate(&mut self, mark: Mark) {
        self.columns.truncate(mark.good);
        self.good.truncate(mark.good);
        self.drift.truncate(mark.good);
        self.bad.truncate(mark.bad);
        self.reasons.truncate(mark.bad);
        self.raw.truncate(mark.bad);
        self.undecided.truncate(mark.undecided);
        self.too_large.truncate(mark.too_large);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Unopened,
    Array,
    Lines,
}

/// Where judging is.
pub struct Cursor {
    batch: usize,
    layout: Layout,
    /// Offset of the next unit in its batch, and where the batch's content ends.
    at: usize,
    end: usize,
    /// Position of the next unit.
    position: i64,
    /// Whether all of the batch is known to be units: otherwise it may still be refused.
    is_whole: bool,
    scratch: Scratch,
}

/// What is in the way.
enum Stop {
    /// The batch cannot be split.
    Refused,
    /// The chunk has room for no more.
    Full,
}

impl Default for Cursor {
    fn default() -> Self {
        let scratch = Scratch::default();
        Cursor { batch: 0, layout: Layout::Unopened, at: 0, end: 0, position: 0, is_whole: false, scratch }
    }
}

impl Cursor {
    /// Judge the next units; None where there are no more.
    pub fn next<B: AsRef<[u8]>>(&mut self, plan: &Plan, batches: &[B], limits: &Limits) -> Option<Chunk> {
        if self.batch == batches.len() {
            return None;
        }
        let rest = batches[self.batch..].iter().map(|batch| batch.as_ref().len()).sum::<usize>();
        let mut chunk = Chunk::new(plan, limits.units.min(rest / USUAL_RECORD));
        while self.batch < batches.len() {
            let bytes = batches[self.batch].as_ref();
            let mark = chunk.mark();
            let mut work = Work { plan, limits, bytes, cursor: self, chunk: &mut chunk };
            match work.batch() {
                Ok(()) => self.close(),
                Err(Stop::Full) => break,
                Err(Stop::Refused) => {
                    chunk.truncate(mark);
                    chunk.refused.push(self.batch as i64);
                    self.close();
                }
            }
        }
        chunk.following = (self.batch, self.position);
        Some(chunk)
    }

    fn close(&mut self) {
        self.batch += 1;
        self.layout = Layout::Unopened;
        self.is_whole = false;
        self.position = 0;
    }
}

struct Work<'a> {
    plan: &'a Plan,
    limits: &'a Limits,
    bytes: &'a [u8],
    cursor: &'a mut Cursor,
    chunk: &'a mut Chunk,
}

impl Work<'_> {
    fn batch(&mut self) -> Result<(), Stop> {
        if self.cursor.layout == Layout::Unopened {
            self.open()?;
        }
        match self.cursor.layout {
            Layout::Unopened => Ok(()), // a single object, which is judged
            Layout::Array => self.array(),
            Layout::Lines => self.lines(),
        }
    }

    fn open(&mut self) -> Result<(), Stop> {
        let bytes = self.bytes;
        let start = skip_space(bytes, if bytes.starts_with(BOM) { BOM.len() } else { 0 });
        let end = content_end(bytes, start, bytes.len());
        self.cursor.at = start;
        self.cursor.end = end;
        match bytes.get(start) {
            // An array that was cut short: nothing of it is judged in vain.
            Some(b'[') if bytes[end - 1] != b']' => Err(Stop::Refused),
            Some(b'[') => {
                self.cursor.layout = Layout::Array;
                self.cursor.at += 1;
                let first = skip_space(bytes, start + 1);
                if bytes.get(first) == Some(&b']') {
                    self.cursor.at = first;
                    self.cursor.is_whole = true;
                    return if first == end - 1 { Ok(()) } else { Err(Stop::Refused) };
                }
                Ok(())
            }
            Some(b'{') => self.objects(start, end),
            _ => Err(Stop::Refused),
        }
    }

    fn objects(&mut self, start: usize, end: usize) -> Result<(), Stop> {
        let bytes = self.bytes;
        let reach = parse(&bytes[start..end], 0, &mut self.cursor.scratch.nodes).map(|reach| start + reach);
        let is_read = reach.is_ok();
        if reach.is_ok_and(|reach| reach == end)
            || (!is_read && container_end(bytes, start, end).is_ok_and(|at| at == end))
        {
            return self.unit(start, end, is_read);
        }
        let mut at = start;
        while let Some((begin, stop, behind)) = line(bytes, at, end) {
            if is_object(bytes, begin, stop) {
                self.cursor.layout = Layout::Lines;
                self.cursor.is_whole = true;
                return Ok(());
            }
            at = behind;
        }
        Err(Stop::Refused)
    }

    fn lines(&mut self) -> Result<(), Stop> {
        while let Some((start, stop, behind)) = line(self.bytes, self.cursor.at, self.cursor.end) {
            let text = &self.bytes[start..stop];
            let read = parse(text, skip_space(text, 0), &mut self.cursor.scratch.nodes);
            self.unit(start, stop, read.is_ok_and(|reach| skip_space(text, reach) == text.len()))?;
            self.cursor.at = behind;
        }
        Ok(())
    }

    fn array(&mut self) -> Result<(), Stop> {
        let end = self.cursor.end;
        let content = &self.bytes[..end];
        if self.cursor.is_whole && content[self.cursor.at] == b']' {
            return Ok(()); // an empty array, or all is done
        }
        loop {
            let start = skip_space(content, self.cursor.at);
            let read = parse(&content[start..], 0, &mut self.cursor.scratch.nodes).map(|reach| start + reach);
            let behind = read.as_ref().map_or(end, |&reach| skip_space(content, reach));
            let is_read = matches!(content.get(behind), Some(b',' | b']'));
            let (stop, behind) = match read {
                Ok(stop) if is_read => (stop, behind),
                _ => {
                    let behind = element_end(content, self.cursor.at, end).map_err(|_| Stop::Refused)?;
                    (content_end(content, start, behind), behind)
                }
            };
            let is_last = content[behind] == b']';
            if is_last && behind != end - 1 {
                return Err(Stop::Refused);
            }
            if let Err(stop) = self.unit(start, stop, is_read) {
                self.check_rest()?;
                return Err(stop);
            }
            self.cursor.at = behind + 1;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Look through the rest of an array before any of its units is handed out.
    fn check_rest(&mut self) -> Result<(), Stop> {
        let end = self.cursor.end;
        let content = &self.bytes[..end];
        let mut at = self.cursor.at;
        while !self.cursor.is_whole {
            let stop = element_end(content, at, end).map_err(|_| Stop::Refused)?;
            if content[stop] == b']' && stop != end - 1 {
                return Err(Stop::Refused);
            }
            self.cursor.is_whole = content[stop] == b']';
            at = stop + 1;
        }
        Ok(())
    }

    /// Judge the unit between two offsets; `is_read` if the tree is its own.
    fn unit(&mut self, start: usize, end: usize, is_read: bool) -> Result<(), Stop> {
        let (cursor, chunk) = (&mut *self.cursor, &mut *self.chunk);
        let size = end - start;
        let bytes = chunk.bytes + size.min(self.limits.record_bytes);
        if chunk.units == self.limits.units || (chunk.units > 0 && bytes > self.limits.bytes) {
            return Err(Stop::Full);
        }
        let text = std::str::from_utf8(&self.bytes[start..end]);
        let (batch, position) = (cursor.batch, cursor.position);
        let verdict = match text {
            _ if size > self.limits.record_bytes => {
                chunk.too_large.push(batch, position, start, end);
                cursor.position += 1;
                chunk.units += 1;
                return Ok(());
            }
            Ok(text) if is_read && size <= LARGEST_RECORD => {
                judge(self.plan, text, &mut cursor.scratch, &mut chunk.columns)
            }
            _ => Verdict::Undecided,
        };
        let faults = &mut cursor.scratch.faults;
        match verdict {
            Verdict::Good => {
                chunk.good.push(batch, position, start, end);
                for drifted in &mut faults.drifted {
                    let codes = drifted.codes();
                    let value = &self.bytes[start..end][drifted.start as usize..drifted.end as usize];
                    let value = std::str::from_utf8(value).unwrap_or_default();
                    chunk.drift.push([&codes, &drifted.path, value]);
                    chunk.bytes += codes.len() + drifted.path.len() + value.len();
                }
                chunk.drift.end();
            }
            Verdict::Bad => {
                chunk.bad.push(batch, position, start, end);
                for fault in &faults.listed {
                    chunk.reasons.push([fault.reason.code(), &fault.path, &fault.detail]);
                    chunk.bytes += fault.path.len() + fault.detail.len();
                }
                chunk.reasons.end();
                chunk.raw.push(&self.bytes[start..end]);
            }
            Verdict::Undecided => chunk.undecided.push(batch, position, start, end),
        }
        cursor.position += 1;
        chunk.units += 1;
        chunk.bytes += size;
        Ok(())
    }
}

//! The native judge of lakeproof: JSON records and a compiled contract in, Arrow's buffers and reasons out.
//!
//! `lakeproof.judge.exact` says what a verdict is; this gives the same ones, or leaves a record to it. A record goes
//! through [`units`] (where it begins and ends), [`tree`] (what is in it) and [`judge`] (whether it fits) to
//! [`columns`] or [`faults`].
//!
//! Beside it, [`hashes`] of the rows of tables, from their [`texts`], and of the bytes of files.

mod columns;
mod faults;
mod hashes;
mod judge;
mod md5;
mod plan;
mod scalars;
mod scan;
mod texts;
mod tree;
mod units;

use columns::{bits_of, Column, Texts, Values};
use plan::Plan;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use texts::{Part, Rows};
use units::{Chunk, Cursor, Limits, Lists, Units};

/// Holds records to a contract.
#[pyclass(frozen)]
struct NativeJudge {
    plan: Arc<Plan>,
}

#[pymethods]
impl NativeJudge {
    /// Compile a plan, which is JSON. ValueError if this judge cannot follow it.
    #[new]
    fn new(plan: &str) -> PyResult<Self> {
        let plan = serde_json::from_str(plan).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(NativeJudge { plan: Arc::new(plan) })
    }

    /// Judge the units of batches.
    fn judge(&self, batches: Vec<PyBackedBytes>, record_bytes: usize, units: usize, bytes: usize) -> Judging {
        let limits = Limits { record_bytes, units, bytes };
        Judging { plan: self.plan.clone(), batches, limits, cursor: Cursor::default() }
    }
}

/// Goes through batches, a chunk of units at a time.
#[pyclass]
struct Judging {
    plan: Arc<Plan>,
    batches: Vec<PyBackedBytes>,
    limits: Limits,
    cursor: Cursor,
}

#[pymethods]
impl Judging {
    /// The next chunk, a dict; None where there are no more. RuntimeError if this judge has an error.
    fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Judging { plan, batches, limits, cursor } = self;
        let judged = py.allow_threads(|| catch_unwind(AssertUnwindSafe(|| cursor.next(plan, batches, limits))));
        let chunk = judged.map_err(|_| PyRuntimeError::new_err("the native judge panicked"))?;
        chunk.map(|chunk| exported(py, &chunk)).transpose()
    }
}

/// Hashes of the rows that a column of objects describes, for the ledger: 8 bytes each.
#[pyfunction]
fn row_hashes<'py>(py: Python<'py>, rows: Part) -> PyResult<Bound<'py, PyBytes>> {
    hashed(py, || Rows::try_from(rows).map(|rows| hashes::row_hashes(&rows)))
}

/// Hashes of their content, for silver: 16 bytes each.
#[pyfunction]
fn content_hashes<'py>(py: Python<'py>, rows: Part) -> PyResult<Bound<'py, PyBytes>> {
    hashed(py, || Rows::try_from(rows).map(|rows| hashes::content_hashes(&rows)))
}

/// Hashes of the bytes of files, for the ledger: 16 bytes each.
#[pyfunction]
fn file_hashes<'py>(py: Python<'py>, contents: Vec<PyBackedBytes>) -> PyResult<Bound<'py, PyBytes>> {
    hashed(py, || Ok(hashes::file_hashes(&contents)))
}

fn hashed<'py, F>(py: Python<'py>, hash: F) -> PyResult<Bound<'py, PyBytes>>
where
    F: FnOnce() -> Result<Vec<u8>, String> + Send,
{
    let hashed = py.allow_threads(|| catch_unwind(AssertUnwindSafe(hash)));
    let hashes = hashed.map_err(|_| PyRuntimeError::new_err("the native hashes panicked"))?;
    Ok(PyBytes::new(py, &hashes.map_err(PyRuntimeError::new_err)?))
}

fn exported<'py>(py: Python<'py>, chunk: &Chunk) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let Values::Struct(columns, _) = &chunk.columns.values else { unreachable!("a record's columns") };
    let columns: Vec<_> = columns.iter().map(|column| column_of(py, column)).collect::<PyResult<_>>()?;
    dict.set_item("columns", columns)?;
    dict.set_item("good", units_of(py, &chunk.good)?)?;
    dict.set_item("drift", lists_of(py, &chunk.drift)?)?;
    dict.set_item("bad", units_of(py, &chunk.bad)?)?;
    dict.set_item("reasons", lists_of(py, &chunk.reasons)?)?;
    dict.set_item("raw", texts_of(py, &chunk.raw)?)?;
    dict.set_item("undecided", units_of(py, &chunk.undecided)?)?;
    dict.set_item("too_large", units_of(py, &chunk.too_large)?)?;
    dict.set_item("refused", &chunk.refused)?;
    dict.set_item("following", chunk.following)?;
    Ok(dict)
}

/// A column as (rows, validity or None, buffers, children, owners or None).
fn column_of<'py>(py: Python<'py>, column: &Column) -> PyResult<Bound<'py, PyAny>> {
    let (buffers, children) = match &column.values {
        Values::Booleans(values) => (vec![PyBytes::new(py, &bits_of(values))], vec![]),
        Values::Ints(values) => (vec![numbers(py, values, i32::to_le_bytes)?], vec![]),
        Values::Longs(values) => (vec![numbers(py, values, i64::to_le_bytes)?], vec![]),
        Values::Floats(values) => (vec![numbers(py, values, f32::to_le_bytes)?], vec![]),
        Values::Doubles(values) => (vec![numbers(py, values, f64::to_le_bytes)?], vec![]),
        Values::Decimals(values) => (vec![numbers(py, values, i128::to_le_bytes)?], vec![]),
        Values::Texts(texts) => (buffers_of(py, texts)?, vec![]),
        Values::List(offsets, items) => (vec![numbers(py, offsets, i32::to_le_bytes)?], vec![column_of(py, items)?]),
        Values::Map(offsets, keys, items) => {
            (vec![numbers(py, offsets, i32::to_le_bytes)?], vec![texts_of(py, keys)?, column_of(py, items)?])
        }
        Values::Struct(columns, _) => {
            (vec![], columns.iter().map(|column| column_of(py, column)).collect::<PyResult<_>>()?)
        }
    };
    let validity = column.validity.finish().map(|bits| PyBytes::new(py, bits));
    let owners = column.owners.as_ref().map(|owners| numbers(py, owners, u32::to_le_bytes)).transpose()?;
    (column.len(), validity, buffers, PyList::new(py, children)?, owners).into_pyobject(py).map(Bound::into_any)
}

/// Numbers as bytes, the lowest first, as Arrow has them on all machines that it has wheels for.
fn numbers<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    values: &[T],
    convert: impl Fn(T) -> [u8; N],
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, values.len() * N, |bytes| {
        for (place, &value) in bytes.chunks_exact_mut(N).zip(values) {
            place.copy_from_slice(&convert(value));
        }
        Ok(())
    })
}

fn buffers_of<'py>(py: Python<'py>, texts: &Texts) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    Ok(vec![numbers(py, texts.offsets(), i32::to_le_bytes)?, PyBytes::new(py, texts.data())])
}

fn texts_of<'py>(py: Python<'py>, texts: &Texts) -> PyResult<Bound<'py, PyAny>> {
    let nothing: Option<()> = None;
    (texts.len(), nothing, buffers_of(py, texts)?, PyList::empty(py), nothing).into_pyobject(py).map(Bound::into_any)
}

fn lists_of<'py, const N: usize>(py: Python<'py>, lists: &Lists<N>) -> PyResult<Bound<'py, PyAny>> {
    let texts = lists.texts.iter().map(|texts| texts_of(py, texts)).collect::<PyResult<Vec<_>>>()?;
    let offsets = numbers(py, &lists.offsets, i32::to_le_bytes)?;
    (lists.offsets.len() - 1, offsets, texts).into_pyobject(py).map(Bound::into_any)
}

/// Units as (batches, positions, starts, ends), each int64.
fn units_of<'py>(py: Python<'py>, units: &Units) -> PyResult<Bound<'py, PyAny>> {
    let bytes = |values: &[i64]| numbers(py, values, i64::to_le_bytes);
    let parts = (bytes(&units.batches)?, bytes(&units.positions)?, bytes(&units.starts)?, bytes(&units.ends)?);
    parts.into_pyobject(py).map(Bound::into_any)
}

#[pymodule]
mod native_judge {
    use super::*;

    #[pymodule_export]
    use super::{content_hashes, file_hashes, row_hashes, NativeJudge};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

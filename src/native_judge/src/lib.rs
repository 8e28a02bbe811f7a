//! The native judge of lakeproof.
use pyo3::prelude::*;

#[pymodule]
mod native_judge {
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

//! Why a report cannot be made.

use plotters::drawing::DrawingAreaErrorKind;

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// plotters could not write a picture.
    #[error("a plot could not be drawn: {0}")]
    Plot(String),
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for Error {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Plot(error.to_string())
    }
}

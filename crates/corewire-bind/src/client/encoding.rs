//! What generated code does before it sends.

use super::{AsyncBinding, Binding};
use crate::capability::Capabilities;
use crate::error::{CallError, EncodeError};
use crate::exchange::Form;

impl Binding {
    /// Checks that the service has a message, by its index in the description.
    ///
    /// # Errors
    /// [`CallError::NotInService`] with this name.
    #[inline]
    pub fn known(&self, wire: usize, name: &'static str) -> Result<(), CallError> {
        match self.forms.get(wire) {
            Form::Absent => Err(CallError::NotInService { name }),
            _ => Ok(()),
        }
    }

    /// Encodes a message in memory that the binding keeps, and hands it to `work`.
    ///
    /// # Errors
    /// Those of `encode` and of `work`.
    #[inline]
    pub fn encoded<'c, R>(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>, &mut Capabilities<'c>) -> Result<(), EncodeError>,
        work: impl FnOnce(&mut Self, &[u8], &Capabilities<'c>) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let (mut message, mut capabilities) = (self.take_scratch(), Capabilities::new());
        let result = match encode(&mut message, &mut capabilities) {
            Ok(()) => work(self, &message, &capabilities),
            Err(error) => Err(error.into()),
        };
        self.give_scratch(message);
        result
    }
}

impl AsyncBinding {
    /// As [`Binding::form`].
    #[must_use]
    pub fn form(&self, wire: usize) -> Form {
        self.lock().form(wire)
    }

    /// As [`Binding::known`].
    ///
    /// # Errors
    /// [`CallError::NotInService`].
    pub fn known(&self, wire: usize, name: &'static str) -> Result<(), CallError> {
        self.lock().known(wire, name)
    }
}

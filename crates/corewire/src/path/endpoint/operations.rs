//! Operations that continue by themselves: receiving in the background, and their completions.

use corewire_endpoint::{
    Completion, Count, CounterId, End, Memory, MessageError, OperationHandle, Options, Selector,
};

use super::Endpoint;
use crate::wait::Patience;

impl Endpoint {
    /// Begins to receive a message that `selector` asks for into `memory`, and never waits. With
    /// [`Memory::pooled`] the message may have any length.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; a later failure is the operation's result.
    pub fn ireceive(
        &mut self,
        selector: Selector,
        memory: impl Into<Memory>,
    ) -> Result<OperationHandle, MessageError> {
        self.ireceive_with(selector, memory, Options::default())
    }

    /// Like [`ireceive`](Self::ireceive), with a number of the caller's choice, another way to report the end, and
    /// truncation.
    ///
    /// # Errors
    /// As for [`ireceive`](Self::ireceive).
    #[inline(always)]
    pub fn ireceive_with(
        &mut self,
        selector: Selector,
        memory: impl Into<Memory>,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        self.engine.start_receive(selector, memory.into(), options)
    }

    /// The result of an operation, if it has ended. Never blocks.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`], `Interrupted`, `Forked`.
    pub fn test(&mut self, handle: OperationHandle) -> Result<Option<Completion>, MessageError> {
        if let Some(completion) = self.engine.take_completion(handle)? {
            return Ok(Some(completion));
        }
        self.engine.progress(None)?;
        self.engine.take_completion(handle)
    }

    /// Waits until an operation has ended.
    ///
    /// # Errors
    /// As for [`test`](Self::test).
    pub fn wait(&mut self, handle: OperationHandle) -> Result<Completion, MessageError> {
        self.wait_any(&[handle]).map(|(_, completion)| completion)
    }

    /// Waits until one of several operations has ended. Returns its index in `handles` and its completion.
    ///
    /// # Errors
    /// As for [`test`](Self::test); also `UnknownOperation` if `handles` is empty.
    pub fn wait_any(
        &mut self,
        handles: &[OperationHandle],
    ) -> Result<(usize, Completion), MessageError> {
        self.wait_any_of(handles, Patience::Forever)
    }

    pub(super) fn wait_any_of(
        &mut self,
        handles: &[OperationHandle],
        patience: Patience,
    ) -> Result<(usize, Completion), MessageError> {
        let look = |endpoint: &mut Self| {
            for (index, &handle) in handles.iter().enumerate() {
                match endpoint.engine.take_completion(handle) {
                    Ok(None) => {}
                    Ok(Some(completion)) => return Some(Ok((index, completion))),
                    Err(error) => return Some(Err(error)),
                }
            }
            handles.is_empty().then_some(Err(MessageError::UnknownOperation))
        };
        let (index, completion) = match look(self) {
            Some(end) => end?,
            None => self.wait_for(patience, None, None, |endpoint, _| look(endpoint))??,
        };
        if let Ok(status) = &completion.result {
            self.poller.expect_handling(status.bytes);
        }
        Ok((index, completion))
    }

    /// The [context](Options::context) of an operation whose end has not been reported: for a caller that keeps handles
    /// where others write, and checks what it finds.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`].
    pub fn context_of(&self, handle: OperationHandle) -> Result<u64, MessageError> {
        self.engine.context_of(handle)
    }

    /// Asks an operation to end. If its message has begun to arrive or to be sent, the operation ends as if it had
    /// not been asked; otherwise it ends at once, with [`MessageError::Cancelled`]. Its end is reported either way.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`].
    pub fn cancel(&mut self, handle: OperationHandle) -> Result<(), MessageError> {
        self.engine.cancel(handle)
    }

    /// Moves up to `count_max` completions, oldest first, of operations that [report](crate::Report) to the
    /// completion queue to the end of `completions`, and returns their number. Waits until there is one.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; nothing is moved then.
    pub fn completions(
        &mut self,
        completions: &mut Vec<Completion>,
        count_max: usize,
    ) -> Result<usize, MessageError> {
        self.completions_patiently(completions, count_max, Patience::Forever)
    }

    pub(super) fn completions_patiently(
        &mut self,
        completions: &mut Vec<Completion>,
        count_max: usize,
        patience: Patience,
    ) -> Result<usize, MessageError> {
        self.wait_for(patience, None, None, |endpoint, _| {
            endpoint.engine.has_completions().then_some(())
        })?;
        Ok(self.drain(completions, count_max))
    }

    pub(super) fn drain(&mut self, completions: &mut Vec<Completion>, count_max: usize) -> usize {
        let next = std::iter::from_fn(|| self.engine.next_completion());
        let before = completions.len();
        completions.extend(next.take(count_max));
        completions.len() - before
    }

    /// Begins to receive the messages that `selector` asks for into `memory`, each behind the last one, as long as at
    /// least `least` bytes are left. Does not block. [`poll`](Self::poll) tells of each with its offset in the memory; the
    /// last one has `is_released` set. A message that does not fit in the rest goes to the next receive, and the memory is
    /// then released without one ([`OperationKind::Release`](crate::OperationKind::Release)). A message that is longer than
    /// all of the memory is truncated if [`Options::truncates`] is set.
    ///
    /// Of a burst of messages only those that arrive before a receive are copied twice; with one buffer for many, the
    /// receive is there. It reports to the queue, or to a counter. Give it [pinned](Memory::pinned) memory: of a vector,
    /// each message gets a new one, and the vector is only the limit.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; what fails later is the operation's result.
    pub fn ireceive_many(
        &mut self,
        selector: Selector,
        memory: impl Into<Memory>,
        least: usize,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        self.engine.start_receive_many(selector, memory.into(), least, options)
    }

    /// Handles what has arrived, and tells `each` of operations that report to the [queue](crate::Report::Queue) as they
    /// end, of at most `max`. Returns how many, after the first round that has told of one. Never blocks. What `max` leaves
    /// untold is told by the next call, in order; so it is if `each` panics. With 0 it only makes progress.
    ///
    /// It is the shortest way from a message to the receive that waits for it: nothing is moved or allocated. A message that
    /// no receive asks for stays in its sender's ring at first, since who is told of an end may ask for it next. The next call
    /// that tells of nothing keeps it; if each call tells of something, the 17th keeps one.
    ///
    /// ```
    /// use corewire::{Domain, Options, Report, Selector};
    ///
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-poll-{}", std::process::id()));
    /// let domain = Domain::open_at(&directory)?;
    /// let (mut a, mut b) = (domain.endpoint("a").create()?, domain.endpoint("b").create()?);
    /// let options = Options { context: 7, report: Report::Queue, ..Options::default() };
    /// b.ireceive_with(Selector::any(), vec![0; 8], options)?;
    /// let to_b = a.peer("b")?;
    /// a.send(to_b, 1, b"hello")?;
    /// let mut received = None;
    /// while received.is_none() {
    ///     b.poll(16, |end| received = Some((end.context, end.result.map(|status| status.bytes).ok())))?;
    /// }
    /// assert_eq!(received, Some((7, Some(5))));
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`.
    #[inline(always)]
    pub fn poll(&mut self, max: usize, each: impl FnMut(End<'_>)) -> Result<usize, MessageError> {
        self.engine.poll(max, each)
    }

    /// A new counter of completions, for operations that [report](crate::Report::Counter) to it.
    pub fn add_counter(&mut self) -> CounterId {
        self.engine.add_counter()
    }

    /// The value of a counter of completions. `None` if the counter is another endpoint's. Does not block.
    #[must_use]
    pub fn count(&self, id: CounterId) -> Option<Count> {
        self.engine.count(id)
    }
}

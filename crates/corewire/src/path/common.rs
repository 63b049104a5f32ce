//! The methods that the senders of both kinds of channel have in common. Each kind adds `send`, `batch`, `drain`,
//! `sent` and `close`. Its `Untyped` has what is compiled once: `send_within`, `loan_within` and `wait_for_receivers_within`.

/// Defines the methods for `$sender`, whose loans are `$loan`.
macro_rules! common_methods {
    ($sender:ident, $loan:ident) => {
        /// For bytes and values.
        impl<T: Payload + ?Sized> $sender<T> {
            /// Sends `message` if there is room now. Never blocks.
            ///
            /// # Errors
            /// [`SendError::Full`], or as for [`send`](Self::send); nothing was sent.
            #[inline]
            pub fn try_send(&mut self, message: &T) -> Result<(), SendError> {
                self.untyped.send_within(message.bytes(), Patience::None)
            }

            /// Sends `message`, waiting for room for at most `timeout`.
            ///
            /// # Errors
            /// [`SendError::Timeout`], or as for [`send`](Self::send); nothing was sent.
            pub fn send_timeout(
                &mut self,
                message: &T,
                timeout: Duration,
            ) -> Result<(), SendError> {
                self.untyped.send_within(message.bytes(), Patience::until(timeout))
            }
        }

        /// For bytes.
        impl $sender {
            /// Lends memory for a message of `bytes` bytes, waiting for room if there is none. The memory has no
            /// meaningful content at first. Up to 48 bytes are 16-byte aligned, longer messages 64-byte aligned.
            ///
            /// # Errors
            /// As for [`send`](Self::send).
            #[inline(always)]
            pub fn loan(&mut self, bytes: usize) -> Result<$loan<'_>, SendError> {
                self.untyped.loan_within(bytes, Patience::Forever)
            }

            /// Lends memory for a message if there is room now. Never blocks.
            ///
            /// # Errors
            /// As for [`try_send`](Self::try_send).
            #[inline]
            pub fn try_loan(&mut self, bytes: usize) -> Result<$loan<'_>, SendError> {
                self.untyped.loan_within(bytes, Patience::None)
            }

            /// Lends memory for a message, waiting for room for at most `timeout`.
            ///
            /// # Errors
            /// As for [`send_timeout`](Self::send_timeout).
            pub fn loan_timeout(
                &mut self,
                bytes: usize,
                timeout: Duration,
            ) -> Result<$loan<'_>, SendError> {
                self.untyped.loan_within(bytes, Patience::until(timeout))
            }
        }

        /// For values of one type.
        impl<T: MessageType> $sender<T> {
            /// Lends memory for a value, waiting for room if there is none. Its fields have no meaningful content at
            /// first, often that of an earlier message. Write each of them.
            ///
            /// # Errors
            /// As for [`send`](Self::send).
            #[inline]
            pub fn loan(&mut self) -> Result<$loan<'_, T>, SendError> {
                self.untyped.loan_within(size_of::<T>(), Patience::Forever).map($loan::of)
            }

            /// Lends memory for a value if there is room now. Never blocks.
            ///
            /// # Errors
            /// As for [`try_send`](Self::try_send).
            #[inline]
            pub fn try_loan(&mut self) -> Result<$loan<'_, T>, SendError> {
                self.untyped.loan_within(size_of::<T>(), Patience::None).map($loan::of)
            }

            /// Lends memory for a value, waiting for room for at most `timeout`.
            ///
            /// # Errors
            /// As for [`send_timeout`](Self::send_timeout).
            pub fn loan_timeout(&mut self, timeout: Duration) -> Result<$loan<'_, T>, SendError> {
                self.untyped.loan_within(size_of::<T>(), Patience::until(timeout)).map($loan::of)
            }
        }

        impl<T: ?Sized> $sender<T> {
            /// Waits until at least `count` receivers have joined, including all that were waiting for the channel when
            /// it was created. Returns the number of joined receivers.
            ///
            /// # Errors
            /// [`SendError::Interrupted`] or `Forked`.
            pub fn wait_for_receivers(&mut self, count: usize) -> Result<usize, SendError> {
                self.untyped.wait_for_receivers_within(count, Patience::Forever)
            }

            /// Like [`wait_for_receivers`](Self::wait_for_receivers), but waits for at most `timeout`. Returns the
            /// number of joined receivers, which may be less than `count`.
            ///
            /// # Errors
            /// [`SendError::Interrupted`] or `Forked`.
            pub fn wait_for_receivers_timeout(
                &mut self,
                count: usize,
                timeout: Duration,
            ) -> Result<usize, SendError> {
                self.untyped.wait_for_receivers_within(count, Patience::until(timeout))
            }

            /// Number of joined receivers. Another thread may change it at any time.
            #[must_use]
            pub fn receivers(&self) -> usize {
                // A forked child lacks the thread that may hold this lock.
                if self.untyped.is_forked() { 0 } else { self.untyped.half.joined() }
            }

            /// Maximum length of this channel's messages in bytes.
            #[must_use]
            pub fn largest_message(&self) -> usize {
                self.untyped.largest_message()
            }

            /// The channel's name.
            #[must_use]
            pub fn name(&self) -> &str {
                self.untyped.half.name().as_str()
            }

            /// One of the sender's counters, by name. Does not block. The values are exact after a wait, and
            /// otherwise as of the last slow path.
            ///
            /// | name | what it counts |
            /// |---|---|
            /// | `messages` | messages sent |
            /// | `bytes` | payload bytes of messages of more than 48 bytes |
            /// | `waits` | times that the sender had to wait for room |
            /// | `sleeps` | times that it slept while it waited |
            /// | `cap_finds` | times that it found room only because the cap ended a sleep |
            /// | `wakes` | times that it woke sleeping receivers |
            /// | `empty_scans` | scans for sleeping receivers that found none |
            ///
            /// # Errors
            /// [`CounterError`] if there is no counter of that name; it lists the names.
            pub fn counter(&self, name: &str) -> Result<u64, CounterError> {
                let counter = CounterError::find(name, "a sender", &SenderCounter::ALL)?;
                let Untyped { ring, .. } = &self.untyped;
                if !self.untyped.is_forked() {
                    ring.publish_counters();
                }
                Ok(ring.counter(counter))
            }

            /// A handle with which another thread ends a call of this sender that waits.
            #[must_use]
            pub fn interrupter(&self) -> Interrupter {
                let notify = self.untyped.half.notifier();
                Interrupter::new(move || notify(notice::INTERRUPTED))
            }
        }

        impl Untyped {
            fn largest_message(&self) -> usize {
                usize::try_from(self.ring.geometry().message_bytes_max()).unwrap_or(usize::MAX)
            }

            fn is_forked(&self) -> bool {
                self.ring.shared().notices() & notice::FORKED != 0
            }

            #[inline(always)]
            fn check_fits(&self, asked: usize) -> Result<(), SendError> {
                if self.ring.allows(asked) {
                    return Ok(());
                }
                Err(SendError::TooLarge { max: self.largest_message(), asked })
            }
        }

        impl<T: ?Sized> fmt::Debug for $sender<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($sender))
                    .field("name", &self.name())
                    .field("sent", &self.sent())
                    .finish()
            }
        }

        impl<T: Payload + ?Sized> Deref for $loan<'_, T> {
            type Target = T;

            #[inline(always)]
            fn deref(&self) -> &T {
                T::view(self.ring.bytes())
            }
        }

        impl<T: Payload + ?Sized> DerefMut for $loan<'_, T> {
            #[inline(always)]
            fn deref_mut(&mut self) -> &mut T {
                T::view_mut(self.ring.bytes_mut())
            }
        }

        impl $loan<'_> {
            /// Shortens the message to its first `bytes` bytes if it is longer.
            pub fn truncate(&mut self, bytes: usize) {
                self.ring.truncate(bytes);
            }
        }

        impl<T: ?Sized> fmt::Debug for $loan<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($loan)).field("bytes", &self.ring.bytes().len()).finish()
            }
        }
    };
}

pub(super) use common_methods;

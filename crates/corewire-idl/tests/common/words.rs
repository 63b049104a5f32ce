//! Names that mean something in Rust, C or C++, in generated code, or to the compiler; and names that become the same once
//! they are written as a language writes them.

/// Words that can be names in interface files: all but `interface`, `message`, `rpc`, `in` and `out`.
const WORDS: &str = "
    as async await break const continue crate dyn else enum extern false fn for if impl let loop match mod move mut pub
    ref return self Self static struct super trait true type unsafe use where while abstract become box do final macro
    override priv try typeof unsized virtual yield gen union auto raw safe default macro_rules catch
    AsMut AsRef Box Clone Copy Debug Default Display DoubleEndedIterator Drop Eq Err Error Extend Fn FnMut FnOnce From
    FromIterator Hash Into IntoIterator Iterator None Ok Option Ord PartialEq PartialOrd Result Send Sized Some String
    Sync ToOwned ToString TryFrom TryInto Unpin Vec Future IntoFuture Pin Path Bytes Wait
    bool char str u8 u16 u32 u64 i8 i16 i32 i64 usize isize f32 f64 u128 i128 core std alloc codec corewire_bind
    Client AsyncClient Server Service Outbox Event Dispatcher DESCRIPTION FORM Reply LaterReply Output Unknown Code Entry
    entry_reply entry_call entryReply EntryOutput EntryLaterReply value decode encode fmt write f place bytes fixed reader
    reply request result error event client service bind binding bound gone not_taken progress wait flush serve serve_one
    stopper clients outbox as_mut try_event event_timeout event_to_all try_self start_self self_then self_timeout then timeout
    domain name details base element capabilities arrived versions form all ordinal message_ Message_ random part parts
    sending identity later send send_all send_results send_timeout fail end is_cancelled is_cancelled_within drop panic vec
    println assert dbg include concat env line file column stringify matches todo unreachable unwrap expect clone into from
    eq ne cmp hash next iter len is_some is_none tag area memory memory_max bytes_max v0 v1 i0 i1 value0 element0 fixed1 part0
    readBlock read_block READ_BLOCK read__block ReadBlock _read_block read_block_ a1_2 a12 A1_2 A12 a_1_2 _ __ ___ _0 _1 x X xX
    Xx int long short float double signed unsigned void auto_ register volatile goto switch case sizeof typedef inline
    restrict alignas alignof and and_eq asm bitand bitor class compl concept const_cast constexpr decltype delete
    dynamic_cast explicit export friend mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public reinterpret_cast requires static_assert static_cast template this thread_local throw typeid typename
    using wchar_t xor xor_eq _Alignas _Atomic _Bool _Complex _Generic _Noreturn NULL EOF errno stdin INT_MAX SIZE_MAX UINT8_MAX
    INT8_C size_t uint8_t int32_t ptrdiff_t memcpy memset offsetof INFINITY NAN I unix linux i386 count data items arm as_
    is_present length index rest used args written capacity length_at encoded vector size unused next_ left
    optional message_call errors stream detailed flexible import edition alias float32 float64 fd endpoint channel cap
    window
";

/// All of them, each once.
pub(crate) fn words() -> Vec<&'static str> {
    let mut all = Vec::new();
    for word in WORDS.split_whitespace() {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    assert!(all.len() > 300, "{}", all.len());
    all
}

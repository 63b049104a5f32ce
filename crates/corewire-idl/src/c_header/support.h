#ifndef COREWIRE_SUPPORT_1
#define COREWIRE_SUPPORT_1

/* What is the same for all interfaces. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Encoding and decoding return 0, or one of these. */
#define COREWIRE_ERROR_CAPACITY 1 /* the message is longer than the buffer */
#define COREWIRE_ERROR_LENGTH 2   /* another number of bytes than the message has */
#define COREWIRE_ERROR_BOUND 3    /* a string or vector is longer than its bound */
#define COREWIRE_ERROR_UTF8 4     /* a string is not UTF-8 */
#define COREWIRE_ERROR_BOOL 5     /* a bool that is neither 0 nor 1 */
#define COREWIRE_ERROR_VALUE 6    /* not a value of the enumeration, or not an arm of the union */
#define COREWIRE_ERROR_POINTER 7  /* NULL where there are elements */
#define COREWIRE_ERROR_INDEX 8    /* a vector has no such element */

/* The kinds of capabilities. */
#define COREWIRE_CAPABILITY_CAP 1
#define COREWIRE_CAPABILITY_GIVE_AWAY_CAP 2
#define COREWIRE_CAPABILITY_FD 3
#define COREWIRE_CAPABILITY_ENDPOINT 4
#define COREWIRE_CAPABILITY_CHANNEL 5
#define COREWIRE_CAPABILITY_CLIENT 6
#define COREWIRE_CAPABILITY_WINDOW 7

/* Whether a capability travels beside the bytes. Always true for kinds that cannot be absent, which encoding does not
 * check. */
typedef bool corewire_capability;

/* UTF-8 without a zero at its end. What was decoded points into the message. */
struct corewire_string {
    const char *data;
    size_t length;
};

/* A vector of uint8. What was decoded points into the message. */
struct corewire_bytes {
    const uint8_t *data;
    size_t count;
};

/* A vector of char. What was decoded points into the message. */
struct corewire_chars {
    const char *data;
    size_t count;
};

/* The part of a message that has not been decoded. */
struct corewire_rest {
    const uint8_t *next;
    size_t left;
};

#define COREWIRE_TRY(call)                \
    do {                                  \
        const int corewire_error = (call); \
        if (corewire_error != 0) {        \
            return corewire_error;        \
        }                                 \
    } while (0)

static inline void corewire_put_u8(uint8_t *at, uint8_t value)
{
    at[0] = value;
}

static inline void corewire_put_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value & 0xff);
    at[1] = (uint8_t)(value >> 8);
}

static inline void corewire_put_u32(uint8_t *at, uint32_t value)
{
    corewire_put_u16(at, (uint16_t)(value & 0xffff));
    corewire_put_u16(at + 2, (uint16_t)(value >> 16));
}

static inline void corewire_put_u64(uint8_t *at, uint64_t value)
{
    corewire_put_u32(at, (uint32_t)(value & 0xffffffff));
    corewire_put_u32(at + 4, (uint32_t)(value >> 32));
}

static inline uint8_t corewire_get_u8(const uint8_t *at)
{
    return at[0];
}

static inline uint16_t corewire_get_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | (at[1] << 8));
}

static inline uint32_t corewire_get_u32(const uint8_t *at)
{
    return corewire_get_u16(at) | ((uint32_t)corewire_get_u16(at + 2) << 16);
}

static inline uint64_t corewire_get_u64(const uint8_t *at)
{
    return corewire_get_u32(at) | ((uint64_t)corewire_get_u32(at + 4) << 32);
}

/* A cast of a number that is too large for the signed type depends on the compiler. */
static inline int64_t corewire_get_i64(const uint8_t *at)
{
    const uint64_t value = corewire_get_u64(at);
    return value <= INT64_MAX ? (int64_t)value : -(int64_t)(UINT64_MAX - value) - 1;
}

static inline int32_t corewire_get_i32(const uint8_t *at)
{
    const uint32_t value = corewire_get_u32(at);
    return value <= INT32_MAX ? (int32_t)value : -(int32_t)(UINT32_MAX - value) - 1;
}

static inline int16_t corewire_get_i16(const uint8_t *at)
{
    const int32_t value = corewire_get_u16(at);
    return (int16_t)(value <= INT16_MAX ? value : value - UINT16_MAX - 1);
}

static inline int8_t corewire_get_i8(const uint8_t *at)
{
    const int32_t value = at[0];
    return (int8_t)(value <= INT8_MAX ? value : value - UINT8_MAX - 1);
}

static inline char corewire_get_char(const uint8_t *at)
{
    char value;
    memcpy(&value, at, 1);
    return value;
}

static inline int corewire_get_bool(const uint8_t *at, bool *value)
{
    if (at[0] > 1) {
        return COREWIRE_ERROR_BOOL;
    }
    *value = at[0] == 1;
    return 0;
}

/* Whether the bytes are UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
static inline bool corewire_is_utf8(const void *data, size_t length)
{
    const uint8_t *at = (const uint8_t *)data;
    size_t index = 0;
    while (index < length) {
        const uint8_t first = at[index++];
        uint8_t low = 0x80;
        uint8_t high = 0xbf;
        size_t more = 0;
        if (first < 0x80) {
            continue;
        }
        if (first >= 0xc2 && first <= 0xdf) {
            more = 1;
        } else if (first >= 0xe0 && first <= 0xef) {
            more = 2;
            low = first == 0xe0 ? 0xa0 : low;
            high = first == 0xed ? 0x9f : high;
        } else if (first >= 0xf0 && first <= 0xf4) {
            more = 3;
            low = first == 0xf0 ? 0x90 : low;
            high = first == 0xf4 ? 0x8f : high;
        } else {
            return false;
        }
        for (; more > 0; more--) {
            if (index == length || at[index] < low || at[index] > high) {
                return false;
            }
            index++;
            low = 0x80;
            high = 0xbf;
        }
    }
    return true;
}

static inline size_t corewire_least(size_t left, size_t right)
{
    return left < right ? left : right;
}

/* Adds bytes behind the first `*used` of `out`, where the caller has checked that the bound fits. */
static inline int corewire_put_bytes(uint8_t *length_at, uint8_t *out, size_t *used, const void *data, size_t count,
                                     uint32_t count_max)
{
    if (count > count_max) {
        return COREWIRE_ERROR_BOUND;
    }
    if (count > 0 && data == NULL) {
        return COREWIRE_ERROR_POINTER;
    }
    corewire_put_u32(length_at, (uint32_t)count);
    if (count > 0) {
        memcpy(out + *used, data, count);
        *used += count;
    }
    return 0;
}

static inline int corewire_put_string(uint8_t *length_at, uint8_t *out, size_t *used, struct corewire_string value,
                                      uint32_t length_max)
{
    const size_t start = *used;
    COREWIRE_TRY(corewire_put_bytes(length_at, out, used, value.data, value.length, length_max));
    return corewire_is_utf8(out + start, value.length) ? 0 : COREWIRE_ERROR_UTF8;
}

/* Takes the elements whose number is at `length_at`. */
static inline int corewire_take(struct corewire_rest *rest, const uint8_t *length_at, uint32_t count_max,
                                size_t element_bytes, const uint8_t **data, size_t *count)
{
    const uint32_t found = corewire_get_u32(length_at);
    if (found > count_max) {
        return COREWIRE_ERROR_BOUND;
    }
    if (found > rest->left / element_bytes) {
        return COREWIRE_ERROR_LENGTH;
    }
    *data = rest->next;
    *count = found;
    rest->next += found * element_bytes;
    rest->left -= found * element_bytes;
    return 0;
}

static inline int corewire_take_bytes(struct corewire_rest *rest, const uint8_t *length_at, uint32_t count_max,
                                      struct corewire_bytes *value)
{
    return corewire_take(rest, length_at, count_max, 1, &value->data, &value->count);
}

static inline int corewire_take_chars(struct corewire_rest *rest, const uint8_t *length_at, uint32_t count_max,
                                      struct corewire_chars *value)
{
    const uint8_t *data = NULL;
    COREWIRE_TRY(corewire_take(rest, length_at, count_max, 1, &data, &value->count));
    value->data = (const char *)data;
    return 0;
}

static inline int corewire_take_string(struct corewire_rest *rest, const uint8_t *length_at, uint32_t length_max,
                                       struct corewire_string *value)
{
    const uint8_t *data = NULL;
    COREWIRE_TRY(corewire_take(rest, length_at, length_max, 1, &data, &value->length));
    value->data = (const char *)data;
    return corewire_is_utf8(data, value->length) ? 0 : COREWIRE_ERROR_UTF8;
}

/* Checks that a string or vector that is absent has no bytes. */
static inline int corewire_absent(const uint8_t *length_at)
{
    return corewire_get_u32(length_at) == 0 ? 0 : COREWIRE_ERROR_BOUND;
}

#endif

#ifndef COREWIRE_SUPPORT_2
#define COREWIRE_SUPPORT_2

/* Floating-point numbers travel as their bits. */

static inline void corewire_put_f32(uint8_t *at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    corewire_put_u32(at, bits);
}

static inline void corewire_put_f64(uint8_t *at, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    corewire_put_u64(at, bits);
}

static inline float corewire_get_f32(const uint8_t *at)
{
    const uint32_t bits = corewire_get_u32(at);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double corewire_get_f64(const uint8_t *at)
{
    const uint64_t bits = corewire_get_u64(at);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif

/**
 * To encode, `items` are the elements. Decoding leaves them in the message, at `encoded`, where
 * $NAME_get reads one. What was decoded can be encoded again.
 */
struct $NAME {
    const $ELEMENT *items;
    const uint8_t *encoded;
    size_t count;
};

/* Reads the element of this index. */
static inline int $NAME_get(const struct $NAME *vector, size_t index, $ELEMENT *value)
{
    if (index >= vector->count) {
        return COREWIRE_ERROR_INDEX;
    }
    if (vector->items != NULL) {
        memcpy(value, &vector->items[index], sizeof *value);
        return 0;
    }
    if (vector->encoded == NULL) {
        return COREWIRE_ERROR_POINTER;
    }
    memset(value, 0, sizeof *value);
    const uint8_t *at = vector->encoded + index * $BYTES;
    $GET
    return 0;
}

static inline int $NAME_check(const struct $NAME *vector)
{
    for (size_t index = 0; index < vector->count; index++) {
        $ELEMENT value;
        COREWIRE_TRY($NAME_get(vector, index, &value));
    }
    return 0;
}

static inline int $NAME_put(uint8_t *length_at, uint8_t *out, size_t *used,
    const struct $NAME *vector, uint32_t count_max)
{
    if (vector->count > count_max) {
        return COREWIRE_ERROR_BOUND;
    }
    corewire_put_u32(length_at, (uint32_t)vector->count);
    if (vector->items == NULL) {
        COREWIRE_TRY($NAME_check(vector));
        if (vector->count > 0) {
            memcpy(out + *used, vector->encoded, vector->count * $BYTES);
            *used += vector->count * $BYTES;
        }
        return 0;
    }
    for (size_t index = 0; index < vector->count; index++) {
        uint8_t *at = out + *used;
        memset(at, 0, $BYTES);
        $PUT
        *used += $BYTES;
    }
    return 0;
}

static inline int $NAME_take(struct corewire_rest *rest, const uint8_t *length_at,
    uint32_t count_max, struct $NAME *vector)
{
    vector->items = NULL;
    COREWIRE_TRY(corewire_take(rest, length_at, count_max, $BYTES, &vector->encoded, &vector->count));
    return $NAME_check(vector);
}

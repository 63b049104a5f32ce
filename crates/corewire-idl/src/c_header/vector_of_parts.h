/**
 * Elements that have strings or vectors of their own. To encode, `items` are the elements. Decoding leaves them in the
 * message, at `encoded`, from where $NAME_next takes one after the other. What was decoded can be encoded again.
 */
struct $NAME {
    const $ELEMENT *items;
    struct corewire_rest encoded;
    size_t count;
};

static inline int $NAME_take_one(struct corewire_rest *rest, $ELEMENT *value)
{
    if (rest->left < $BYTES) {
        return COREWIRE_ERROR_LENGTH;
    }
    const uint8_t *at = rest->next;
    rest->next += $BYTES;
    rest->left -= $BYTES;
    memset(value, 0, sizeof *value);
    $GET
    return 0;
}

/* Takes the first element out of the vector, whose `count` is one less then. */
static inline int $NAME_next(struct $NAME *vector, $ELEMENT *value)
{
    if (vector->count == 0) {
        return COREWIRE_ERROR_INDEX;
    }
    if (vector->items != NULL) {
        memcpy(value, vector->items, sizeof *value);
        vector->items++;
        vector->count--;
        return 0;
    }
    if (vector->encoded.next == NULL) {
        return COREWIRE_ERROR_POINTER;
    }
    COREWIRE_TRY($NAME_take_one(&vector->encoded, value));
    vector->count--;
    return 0;
}

/* Passes `count` elements. */
static inline int $NAME_check(struct corewire_rest *rest, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        $ELEMENT value;
        COREWIRE_TRY($NAME_take_one(rest, &value));
    }
    return 0;
}

static inline size_t $NAME_size(const struct $NAME *vector, uint32_t count_max)
{
    if (vector->items == NULL) {
        return vector->encoded.left;
    }
    size_t size = 0;
    for (size_t index = 0; index < corewire_least(vector->count, count_max); index++) {
        size += $BYTES;
        $SIZE
    }
    return size;
}

static inline int $NAME_put(uint8_t *length_at, uint8_t *out, size_t *used,
    const struct $NAME *vector, uint32_t count_max)
{
    if (vector->count > count_max) {
        return COREWIRE_ERROR_BOUND;
    }
    corewire_put_u32(length_at, (uint32_t)vector->count);
    if (vector->items == NULL) {
        if (vector->count > 0 && vector->encoded.next == NULL) {
            return COREWIRE_ERROR_POINTER;
        }
        struct corewire_rest rest = vector->encoded;
        COREWIRE_TRY($NAME_check(&rest, vector->count));
        if (rest.left > 0) {
            return COREWIRE_ERROR_LENGTH;
        }
        if (vector->encoded.left > 0) {
            memcpy(out + *used, vector->encoded.next, vector->encoded.left);
            *used += vector->encoded.left;
        }
        return 0;
    }
    for (size_t index = 0; index < vector->count; index++) {
        uint8_t *at = out + *used;
        memset(at, 0, $BYTES);
        *used += $BYTES;
        $PUT
    }
    return 0;
}

static inline int $NAME_take(struct corewire_rest *rest, const uint8_t *length_at,
    uint32_t count_max, struct $NAME *vector)
{
    const uint32_t count = corewire_get_u32(length_at);
    if (count > count_max) {
        return COREWIRE_ERROR_BOUND;
    }
    if (count > rest->left / $BYTES) {
        return COREWIRE_ERROR_LENGTH;
    }
    vector->items = NULL;
    vector->count = count;
    vector->encoded.next = rest->next;
    COREWIRE_TRY($NAME_check(rest, count));
    vector->encoded.left = (size_t)(rest->next - vector->encoded.next);
    return 0;
}

/* The bytes of the message. What is longer than its bound counts as long as that. */
static inline size_t $NAME_size(const struct $NAME *args)
{
    $SIZE
}

/* Writes the message to `out`, and the number of its bytes to `written`. */
static inline int $NAME_encode(const struct $NAME *args, uint8_t *out, size_t capacity,
    size_t *written)
{
    *written = 0;
    if (capacity < $NAME_size(args)) {
        return COREWIRE_ERROR_CAPACITY;
    }
    $PUT
    return 0;
}

/* Reads the message. Strings and vectors stay where they are. */
static inline int $NAME_decode(struct $NAME *args, const uint8_t *bytes, size_t length)
{
    memset(args, 0, sizeof *args);
    $GET
}

/* Encodes messages of the interface `all`, and prints their bytes. */

#include "all.h"

#include <stdio.h>

static int print(const char *name, int code, const uint8_t *bytes, size_t count)
{
    if (code != 0) {
        fprintf(stderr, "%s: %d\n", name, code);
        return 1;
    }
    printf("%s ", name);
    for (size_t i = 0; i < count; i++) {
        printf("%02x", bytes[i]);
    }
    printf("\n");
    return 0;
}

static int refused(const char *name, int found, int due)
{
    if (found != due) {
        fprintf(stderr, "%s: %d instead of %d\n", name, found, due);
        return 1;
    }
    return 0;
}

int main(void)
{
    uint8_t out[4096];
    size_t written = 0;
    int wrong = 0;

    struct all_line line = {0};
    line.number = 7;
    line.text.data = "a line";
    line.text.length = 6;
    int code = all_line_encode(&line, out, sizeof out, &written);
    wrong |= print("line", code, out, written);

    const struct all_pair one = {.left = -5, .small = 6, .right = UINT64_MAX, .flag = true};
    const struct all_pair two = {.left = 7, .small = 0, .right = 8, .flag = false};
    const struct all_pair list[] = {one, two};
    struct all_choice any[2] = {{0}, {0}};
    any[0].arm = ALL_CHOICE_YES;
    any[0].as.yes = true;
    any[1].arm = ALL_CHOICE_BOTH;
    any[1].as.both = one;
    const uint8_t bytes[] = {1, 2, 3};
    const uint16_t words[] = {1, 65535};
    struct all_dynamic_call dynamic = {0};
    dynamic.text.data = "\303\251";
    dynamic.text.length = 2;
    dynamic.bytes.data = bytes;
    dynamic.bytes.count = 3;
    dynamic.list.items = list;
    dynamic.list.count = 2;
    dynamic.any.items = any;
    dynamic.any.count = 2;
    dynamic.e.name.data = "n";
    dynamic.e.name.length = 1;
    dynamic.e.words.items = words;
    dynamic.e.words.count = 2;
    dynamic.e.which.arm = ALL_CHOICE_THREE;
    dynamic.e.which.as.three[0] = one;
    dynamic.e.which.as.three[1] = two;
    dynamic.e.which.as.three[2] = one;
    code = all_dynamic_call_encode(&dynamic, out, sizeof out, &written);
    wrong |= print("dynamic", code, out, written);

    /* Elements are read where they arrived. */
    struct all_dynamic_call arrived;
    wrong |= refused("decode", all_dynamic_call_decode(&arrived, out, written), 0);
    struct all_pair second;
    wrong |= refused("get", all_pair_vector_get(&arrived.list, 1, &second), 0);
    wrong |= refused("second", second.left, 7);
    wrong |= refused("third", all_pair_vector_get(&arrived.list, 2, &second), COREWIRE_ERROR_INDEX);
    wrong |= refused("three", arrived.e.which.as.three[2].left, -5);

    struct all_fails_reply fails = {0};
    fails.error = ALL_TROUBLE_DENIED;
    fails.fine = 9; /* counts nothing beside an error */
    code = all_fails_reply_encode(&fails, out, sizeof out, &written);
    wrong |= print("fails", code, out, written);

    struct all_perhaps_call perhaps = {0};
    perhaps.a.is_present = true;
    perhaps.a.value = 5;
    perhaps.c.is_present = true;
    perhaps.c.value.data = (const uint8_t *)"xy";
    perhaps.c.value.count = 2;
    code = all_perhaps_call_encode(&perhaps, out, sizeof out, &written);
    wrong |= print("perhaps", code, out, written);

    /* What encoding refuses. */
    wrong |= refused("capacity", all_line_encode(&line, out, 13, &written), COREWIRE_ERROR_CAPACITY);
    line.text.length = SIZE_MAX;
    wrong |= refused("bound", all_line_encode(&line, out, sizeof out, &written), COREWIRE_ERROR_BOUND);
    line.text.data = NULL;
    line.text.length = 3;
    wrong |= refused("pointer", all_line_encode(&line, out, sizeof out, &written), COREWIRE_ERROR_POINTER);
    line.text.data = "\355\240\200";
    wrong |= refused("surrogate", all_line_encode(&line, out, sizeof out, &written), COREWIRE_ERROR_UTF8);
    dynamic.list.count = 9;
    wrong |= refused("elements", all_dynamic_call_encode(&dynamic, out, sizeof out, &written), COREWIRE_ERROR_BOUND);
    dynamic.list.count = 0;
    any[1].arm = 4;
    wrong |= refused("arm", all_dynamic_call_encode(&dynamic, out, sizeof out, &written), COREWIRE_ERROR_VALUE);
    struct all_structures_call structures = {0};
    structures.c = 1;
    code = all_structures_call_encode(&structures, out, sizeof out, &written);
    wrong |= refused("color", code, COREWIRE_ERROR_VALUE);
    return wrong;
}

/* The word somebody may have meant. Pure. */

#ifndef CO_CONTROLLER_SUGGEST_H
#define CO_CONTROLLER_SUGGEST_H

#include <stddef.h>

/* How many letters have to be changed, added, removed or swapped with their neighbour; long words
 * are only compared by their first 31. */
unsigned co_suggest_distance(const char *a, const char *b);

/* Whether `word` is near enough to `known` to be a slip of it. */
int co_suggest_near(const char *word, const char *known);

#endif /* CO_CONTROLLER_SUGGEST_H */

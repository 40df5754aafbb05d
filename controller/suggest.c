#include "controller/suggest.h"

#include <string.h>

#define LETTERS_MAX 31

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned co_suggest_distance(const char *a, const char *b)
{
    unsigned cost[LETTERS_MAX + 1][LETTERS_MAX + 1];
    size_t n = strnlen(a, LETTERS_MAX);
    size_t m = strnlen(b, LETTERS_MAX);

    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                cost[i][j] = (unsigned)(i + j);
                continue;
            }
            cost[i][j] = least(least(cost[i - 1][j], cost[i][j - 1]) + 1,
                               cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                cost[i][j] = least(cost[i][j], cost[i - 2][j - 2] + 1);
            }
        }
    }
    return cost[n][m];
}

int co_suggest_near(const char *word, const char *known)
{
    size_t len = strlen(known);
    unsigned allowed = len <= 4 ? 1 : 2;

    /* The beginning of a word is a suggestion too: "stat" for "status". */
    return co_suggest_distance(word, known) <= allowed ||
           (strlen(word) >= 2 && strncmp(word, known, strlen(word)) == 0);
}

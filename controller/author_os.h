/* Who gives a command. */

#ifndef CO_CONTROLLER_AUTHOR_OS_H
#define CO_CONTROLLER_AUTHOR_OS_H

#include <stddef.h>

/* user@host, cut to fit; through sudo the person, not root. */
void co_author_write(char *buf, size_t size);

#endif /* CO_CONTROLLER_AUTHOR_OS_H */

/* A command of WASI preview 1: it reads the parameters as JSON from standard input, and
   writes its result as JSON to standard output. Build it:
       clang --target=wasm32-wasi -O2 main.c -o skill.wasm */
#include <stdio.h>
#include <string.h>

int main(void) {
    static char json[65536];
    size_t size = fread(json, 1, sizeof json - 1, stdin);
    json[size] = 0;
    char *who = strstr(json, "\"who\":");
    who = who ? strchr(who + 6, '"') : 0;
    /* A JSON string, with its quotes and escapes. A library reads any JSON. */
    char *end = who ? who + 1 : 0;
    while (end && *end && *end != '"') end += *end == '\\' && end[1] ? 2 : 1;
    if (!end || !*end || strncmp(who, "\"unknown\"", 9) == 0) {
        puts("{\"error\": \"The name is unknown.\"}");
        return 1;
    }
    printf("\"Hello, %.*s!\"\n", (int)(end - who - 1), who + 1);
    return 0;
}

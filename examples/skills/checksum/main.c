/* A skill in C, as a command of WASI preview 1: JSON on standard input, JSON on standard output.
 * It computes the CRC-32 of a text (ISO 3309, as in zip files). */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 1 << 20 };
static char input[MOST];
static unsigned char text[MOST];

static int hex(const char **at) {
  int number = 0;
  for (int i = 0; i < 4; i++, (*at)++) {
    char c = **at;
    int digit = c >= '0' && c <= '9' ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    number = number * 16 + digit;
  }
  return number;
}

static unsigned char *utf8(unsigned char *to, long code) {
  if (code < 0x80) { *to++ = (unsigned char)code; return to; }
  if (code < 0x800) { *to++ = (unsigned char)(0xC0 | code >> 6); }
  else {
    if (code < 0x10000) *to++ = (unsigned char)(0xE0 | code >> 12);
    else { *to++ = (unsigned char)(0xF0 | code >> 18); *to++ = (unsigned char)(0x80 | (code >> 12 & 63)); }
    *to++ = (unsigned char)(0x80 | (code >> 6 & 63));
  }
  *to++ = (unsigned char)(0x80 | (code & 63));
  return to;
}

static const char *skip(const char *at) { return at + strspn(at, " \t\r\n"); }

/* Return the length of the member "text" of an object that has no other, or -1. */
static long read_text(const char *at) {
  unsigned char *to = text;
  at = skip(at);
  if (*at++ != '{') return -1;
  at = skip(at);
  if (strncmp(at, "\"text\"", 6) != 0) return -1;
  at = skip(at + 6);
  if (*at++ != ':') return -1;
  at = skip(at);
  if (*at++ != '"') return -1;
  while (*at != '"') {
    if (*at == '\0') return -1;
    if (*at != '\\') { *to++ = (unsigned char)*at++; continue; }
    at++;
    switch (*at++) {
      case 'b': *to++ = '\b'; break;
      case 'f': *to++ = '\f'; break;
      case 'n': *to++ = '\n'; break;
      case 'r': *to++ = '\r'; break;
      case 't': *to++ = '\t'; break;
      case 'u': {
        long code = hex(&at);
        if (code < 0) return -1;
        if (code >= 0xD800 && code < 0xDC00) {
          long low;
          if (at[0] != '\\' || at[1] != 'u') return -1;
          at += 2;
          low = hex(&at);
          if (low < 0xDC00 || low > 0xDFFF) return -1;
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        to = utf8(to, code);
        break;
      }
      case '\0': return -1;
      default: *to++ = (unsigned char)at[-1];
    }
  }
  return to - text;
}

int main(void) {
  size_t size = fread(input, 1, sizeof input - 1, stdin);
  long length;
  uint32_t crc = 0xFFFFFFFFu;
  if (size == sizeof input - 1 && fgetc(stdin) != EOF) {
    printf("{\"error\": \"The text is too long.\"}");
    return 1;
  }
  length = read_text(input);
  if (length < 0) {
    printf("{\"error\": \"it is not a text\", \"parameter\": \"text\"}");
    return 1;
  }
  for (long i = 0; i < length; i++) {
    crc ^= text[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1));
  }
  printf("{\"crc32\": \"%08x\", \"bytes\": %ld}", (unsigned)(crc ^ 0xFFFFFFFFu), length);
  return 0;
}

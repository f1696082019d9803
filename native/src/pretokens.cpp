#include "pretokens.hpp"

#include <algorithm>
#include <cstring>

#include "utf8.hpp"

namespace tokpress {
namespace {

constexpr size_t kWholeCluster = 6;  // bytes; longer clusters are looked up a character at a time

// Of Unicode's White_Space, as Rust has it: the size of the one that the text begins with, or 0.
size_t white_space(const uint8_t* text) {
  const Char c = decode(text);
  const uint32_t code = c.code;
  const bool found = code == ' ' || (code >= 9 && code <= 13) || code == 0x85 || code == 0xA0 || code == 0x1680 ||
                     (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
                     code == 0x205F || code == 0x3000;
  return found ? c.size : 0;
}

bool is_meta(const uint8_t* text, size_t size) {
  return size >= 3 && text[0] == 0xE2 && text[1] == 0x96 && text[2] == 0x81;
}

}  // namespace

Pretokens::Pretokens(const Model& model) : settings_(model.json) {
  if (!model.charsmap.empty()) map_ = Charsmap(model.charsmap);
  for (uint32_t code = 0; code < 128; ++code) plain_[code] = map_.empty() || !(map_.flags(code) & Charsmap::kHasRule);
}

void Pretokens::run(const uint8_t* text, size_t size, Canonical& scratch, Canonical& out) const {
  if (!map_.empty()) {
    replace(text, size, scratch);
    text = scratch.data();
    size = scratch.size();
  }
  while (settings_.strip_left && size) {
    const size_t space = white_space(text);
    if (!space) break;
    text += space;
    size -= space;
  }
  while (settings_.strip_right && size) {
    size_t last = size - 1;
    while (!is_start(text[last])) --last;
    if (!white_space(text + last)) break;
    size = last;
  }
  split(text, size, out);
}

// Bytes of the character that the text begins with, and of what joins it.
size_t Pretokens::cluster(const uint8_t* text, size_t size) const {
  const Char first = decode(text);
  size_t end = first.size;
  if (first.code == '\r' && end < size && text[end] == '\n') return 2;
  if (!graphemes_.is_base(first.code)) return end;
  while (end < size && text[end] >= 128) {
    const Char next = decode(text + end);
    if (!graphemes_.joins(next.code)) break;
    end += next.size;
  }
  return end;
}

void Pretokens::replace(const uint8_t* text, size_t size, Canonical& out) const {
  size_t room = size + size / 2 + 64;
  out.set_size(0);
  out.reserve(room);
  uint8_t* to = out.data();
  const auto put = [&](std::string_view becomes, size_t left) {
    const size_t used = static_cast<size_t>(to - out.data()), need = used + becomes.size() + left + 8;
    if (need > room) {
      room = need + need / 2;
      out.set_size(used);
      out.reserve(room);
      to = out.data() + used;
    }
    std::memcpy(to, becomes.data(), becomes.size());
    to += becomes.size();
  };
  const auto put_char = [&](const uint8_t* at, const Char& c, size_t left) {
    const uint32_t flags = map_.flags(c.code);
    put(flags & Charsmap::kHasRule ? map_.replacement(flags & Charsmap::kRule)
                                   : std::string_view(reinterpret_cast<const char*>(at), c.size),
        left);
  };
  for (size_t i = 0; i < size;) {
    const uint8_t next = i + 1 < size ? text[i + 1] : 0;
    if ((text[i] | next) < 128 && !(text[i] == '\r' && next == '\n')) {  // alone
      if (plain_[text[i]]) {
        *to++ = text[i++];
      } else {
        put_char(text + i, {text[i], 1}, size - i);
        ++i;
      }
      continue;
    }
    const size_t end = i + cluster(text + i, size - i);
    std::string_view becomes;
    if (end - i < kWholeCluster && map_.shortest(text + i, end - i, becomes)) {
      put(becomes, size - i);
    } else {
      for (size_t k = i; k < end;) {
        const Char c = decode(text + k);
        put_char(text + k, c, size - k);
        k += c.size;
      }
    }
    i = end;
  }
  out.set_size(static_cast<size_t>(to - out.data()));
}

void Pretokens::split(const uint8_t* text, size_t size, Canonical& out) const {
  out.set_size(0);
  if (!size) return;
  out.reserve(2 * size + 2);  // a space before each word
  uint8_t* to = out.data();
  bool at_word = true;  // no character of this word was written yet
  for (size_t i = 0; i < size;) {
    if (text[i] > ' ' && text[i] < 128) {
      if (at_word && settings_.prefix) *to++ = ' ';
      at_word = false;
      *to++ = text[i++];
      continue;
    }
    const bool meta = is_meta(text + i, size - i);
    bool space = meta || text[i] == ' ';
    if (text[i] == ' ' && settings_.joined_spaces && i + 1 < size && text[i + 1] == ' ') {
      while (i + 1 < size && text[i + 1] == ' ') ++i;
      // What two and more become is a space, which splits words, or U+2581, which is a character.
      if (settings_.joined_spaces == JsonSettings::kMeta || !settings_.words) {
        *to++ = ' ';
      }
      at_word = settings_.joined_spaces != JsonSettings::kMeta && settings_.words;
      ++i;
      continue;
    }
    if (settings_.words && !meta) {
      if (const size_t white = white_space(text + i)) {
        at_word = true;
        i += white;
        continue;
      }
    }
    if (space) {
      *to++ = ' ';
      i += meta ? 3 : 1;
    } else {
      if (at_word && settings_.prefix) *to++ = ' ';
      const uint32_t width = char_size(text[i]);
      std::memcpy(to, text + i, width);
      to += width;
      i += width;
    }
    at_word = false;
  }
  out.set_size(static_cast<size_t>(to - out.data()));
}

bool Pretokens::unsettled(const uint8_t* text, size_t size) const {
  if (map_.empty()) return false;
  uint32_t before = 0;  // size of the character before
  for (size_t i = 0; i < size;) {
    if (text[i] < 128) {
      ++i;
      before = 1;
      continue;
    }
    const Char c = decode(text + i);
    if (graphemes_.prepends(c.code)) return true;
    const size_t whole = cluster(text + i, size - i);
    const bool joined = whole > c.size && whole < kWholeCluster;
    if (joined && (c.code == 0xA9 || c.code == 0xAE || (c.size == 3 && before >= 3))) return true;
    // The size of the last character of the cluster is all that matters of it.
    before = c.size;
    i += c.size;
  }
  return false;
}

}  // namespace tokpress

// The protobuf wire format, as far as a SentencePiece model needs it.
//
// In: bytes. Out: one field after another. Every read is checked against the end.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "model.hpp"

namespace tokpress {

struct Field {
  uint32_t number = 0;
  uint32_t wire = 0;
  uint64_t varint = 0;
  std::string_view bytes;

  std::string_view text() const {
    if (wire != 2) throw Refused("the model cannot be read: a number where bytes should be");
    return bytes;
  }
  uint64_t number_value() const {
    if (wire != 0) throw Refused("the model cannot be read: bytes where a number should be");
    return varint;
  }
  float real() const {
    if (wire != 5) throw Refused("the model cannot be read: a score is no 32-bit float");
    float value;
    std::memcpy(&value, bytes.data(), 4);
    return value;
  }
};

class Fields {
 public:
  explicit Fields(std::string_view data) : data_(data) {}

  bool next(Field& field) {
    if (at_ == data_.size()) return false;
    const uint64_t key = varint();
    if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) throw Refused("the model cannot be read: a field without a number");
    field = {static_cast<uint32_t>(key >> 3), static_cast<uint32_t>(key & 7), 0, {}};
    switch (field.wire) {
      case 0: field.varint = varint(); break;
      case 1: field.bytes = take(8); break;
      case 2: field.bytes = take(varint()); break;
      case 5: field.bytes = take(4); break;
      default: throw Refused("the model cannot be read: an unknown wire type");
    }
    return true;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == data_.size()) break;
      const auto byte = static_cast<uint8_t>(data_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw Refused("the model cannot be read: a number without an end");
  }

  std::string_view take(uint64_t size) {
    if (size > data_.size() - at_) throw Refused("the model cannot be read: it ends early");
    at_ += size;
    return data_.substr(at_ - size, size);
  }

  std::string_view data_;
  size_t at_ = 0;
};

}  // namespace tokpress

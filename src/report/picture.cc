#include "report/picture.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/text.h"

namespace plait::report {
namespace {

// In pixels.
constexpr double kWidth = 1200;
constexpr double kLeft = 170;  // for the rows' names
constexpr double kRight = 20;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr double kHead = 34;  // of a run: its title
constexpr double kRowHeight = 13;
constexpr double kBar = 11;
constexpr double kBetweenRanks = 8;
constexpr double kAxis = 40;

struct Look {
  Row row;
  const char* color;
};

// Indexed by Row: a class and what it looks like on a white page.
constexpr std::array<Look, kRows> kLooks = {{{Row::product, "#3b6fb6"},
                                             {Row::communication, "#2f9e77"},
                                             {Row::link, "#a08bc9"},
                                             {Row::exposed, "#d9534f"}}};

std::string show_time(double nanoseconds) {
  return base::show_duration(static_cast<base::Nanoseconds>(nanoseconds));
}

// 1, 2 or 5 times a power of ten: about eight steps in the whole.
double step_for(double whole) {
  const double rough = std::max(whole, 1.0) / 8;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= rough) return times * power;
  }
  return 10 * power;
}

// What is known of a bar, for whoever points at it.
std::string describe(const Bar& bar) {
  std::string text = fmt::format("rank {}, {}: {}, {} from {}", bar.rank, name(bar.row), bar.name,
                                 show_time(static_cast<double>(bar.end - bar.begin)),
                                 show_time(static_cast<double>(bar.begin)));
  if (bar.args.peer >= 0) text += fmt::format(", rank {}", bar.args.peer);
  if (bar.args.chunk >= 0) text += fmt::format(", chunk {}", bar.args.chunk);
  if (bar.args.bytes >= 0) text += ", " + base::show_bytes(static_cast<double>(bar.args.bytes));
  if (bar.args.flops >= 0 && bar.end > bar.begin) {
    text += fmt::format(", {:.0f} GFLOP/s", static_cast<double>(bar.args.flops) /
                                                static_cast<double>(bar.end - bar.begin));
  }
  return text;
}

class Picture {
 public:
  explicit Picture(const Timeline& timeline)
      : timeline_(timeline),
        ranks_(timeline.ranks()),
        scale_(kPlot / static_cast<double>(std::max<std::int64_t>(timeline.length(), 1))) {}

  std::string draw() {
    double y = 4;
    for (const Run& run : timeline_.runs) y = draw_run(run, y);
    const double height = y + kAxis;
    const double ideal = kLeft + static_cast<double>(timeline_.ideal()) * scale_;
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" "
        "class=\"timeline\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\" "
        "fill=\"var(--ink, #1b1f24)\" data-left=\"{:.0f}\" data-plot=\"{:.0f}\" "
        "data-length=\"{}\">\n<title>{}</title>\n",
        kWidth, height, kLeft, kPlot, timeline_.length(), escaped(timeline_.title));
    text += fmt::format(
        "<clipPath id=\"plot\"><rect x=\"{:.0f}\" y=\"0\" width=\"{:.0f}\" "
        "height=\"{:.0f}\"/></clipPath>\n",
        kLeft, kPlot, height);
    text += words_;
    text += "<g clip-path=\"url(#plot)\"><g class=\"zoomed\">\n" + bars_;
    text += fmt::format(
        "<rect class=\"ideal\" x=\"{:.2f}\" y=\"0\" width=\"1.5\" height=\"{:.0f}\" "
        "fill=\"var(--ink, #1b1f24)\" fill-opacity=\"0.6\"><title>ideal: {}</title></rect>\n",
        ideal, y, show_time(static_cast<double>(timeline_.ideal())));
    text += "</g></g>\n<g class=\"axis\">\n" + axis(y) + "</g>\n</svg>\n";
    return text;
  }

 private:
  double draw_run(const Run& run, double y) {
    std::string title =
        fmt::format("{}: {}", run.title, show_time(static_cast<double>(run.length)));
    if (&run != &timeline_.runs.front() && run.length > 0) {
      title +=
          fmt::format(", {:.2f} times as fast", static_cast<double>(timeline_.runs.front().length) /
                                                    static_cast<double>(run.length));
    }
    if (run.efficiency) title += fmt::format(", efficiency {:.2f}", *run.efficiency);
    title += fmt::format("; exposed {}", show_time(run.exposed()));
    words_ += fmt::format("<text x=\"8\" y=\"{:.0f}\" font-weight=\"bold\">{}</text>\n", y + 20,
                          escaped(title));
    y += kHead;
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int row = 0; row < kRows; ++row) {
        words_ += fmt::format(
            "<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\" font-size=\"10\" "
            "fill-opacity=\"0.8\">{}{}</text>\n",
            kLeft - 8, y + row * kRowHeight + 9, row == 0 ? fmt::format("rank {} ", rank) : "",
            name(static_cast<Row>(row)));
      }
      for (const Bar& bar : run.bars) {
        if (bar.rank == rank) draw_bar(bar, y);
      }
      y += kRows * kRowHeight + kBetweenRanks;
    }
    return y;
  }

  void draw_bar(const Bar& bar, double y) {
    const Look& look = kLooks[static_cast<std::size_t>(bar.row)];
    bars_ += fmt::format(
        "<rect class=\"bar {0}\" x=\"{1:.3f}\" y=\"{2:.0f}\" width=\"{3:.3f}\" height=\"{4:.0f}\" "
        "fill=\"var(--{0}, {5})\"><title>{6}</title></rect>\n",
        name(bar.row), kLeft + static_cast<double>(bar.begin) * scale_,
        y + static_cast<int>(bar.row) * kRowHeight,
        std::max(static_cast<double>(bar.end - bar.begin) * scale_, 0.3), kBar, look.color,
        escaped(describe(bar)));
  }

  std::string axis(double y) const {
    std::string text;
    const auto whole = static_cast<double>(timeline_.length());
    const double step = step_for(whole);
    for (double at = 0; at <= whole; at += step) {
      text += fmt::format(
          "<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\" font-size=\"10\">{}</text>\n",
          kLeft + at * scale_, y + 16, at == 0 ? "0" : show_time(at));
    }
    text += fmt::format(
        "<text x=\"{:.0f}\" y=\"{:.0f}\" font-size=\"10\" fill-opacity=\"0.8\">the thin line is "
        "the ideal: {} (product alone {}, collective alone {})</text>\n",
        kLeft, y + 32, show_time(static_cast<double>(timeline_.ideal())),
        show_time(static_cast<double>(timeline_.product)),
        show_time(static_cast<double>(timeline_.collective)));
    return text;
  }

  const Timeline& timeline_;
  int ranks_;
  double scale_;  // pixels for a nanosecond
  std::string words_;
  std::string bars_;
};

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += letter;
    }
  }
  return out;
}

std::string picture(const Timeline& timeline) { return Picture(timeline).draw(); }

}  // namespace plait::report

(function (evalloom_error) {
  "use strict";
})

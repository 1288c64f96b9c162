// Swagger UI on this aggregator's own description. It asks nobody else: no validator, no other URL.
"use strict";

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#interface",
  deepLinking: true,
  queryConfigEnabled: false,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
});
